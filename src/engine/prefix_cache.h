// The prefix cache: what the model has computed for earlier prompts, kept for the prompts to come.
//
// A client sends its whole conversation every turn, and on this runtime every prefilled token costs
// reads, so the state of the longest prefix seen before is worth keeping. The session's live state
// holds one sequence of tokens, its *line*. When another conversation takes over, the line is
// parked: its tokens, append-only rows and the state that cannot be rewound are copied here, and
// copied back when a prompt continues it. Where a family's state cannot go back at will (recurrent
// matrices, wrapped rings), snapshots of it are taken while a prompt is computed, so that a line
// can also be continued from the end of its system block or from before its last reply.
//
// Every decision compares token ids; a copied state continues with the same bytes as the one it
// was copied from. All copies come out of one fixed budget, reserved when the cache is made; the
// least recently used ones give way.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/sequence_state.h"
#include "base/ledger.h"

namespace mference {

class PromptCacheDirectory;

struct PrefixCacheOptions {
  uint64_t budget_bytes = 0;  // 0: only the live state is used
  // Tokens that begin a turn (a role's marker). Snapshots are taken before them: at the end of the
  // first turn (the system block) and of the last one before the reply.
  std::vector<int32_t> turn_starts = {};
  // A step is split for a snapshot, or a file read, only where that spares at least so many tokens.
  int64_t min_gain_tokens = 64;
  // A line is parked only if it would lose at least so many: copying it is cheap.
  int64_t min_parked_tokens = 16;
  // In long prompts also at the ends of steps, so many tokens apart at least.
  int64_t spacing_tokens = 2048;
  // Most snapshots of one line. The first and the newest stay, the others are thinned out evenly.
  int32_t snapshots_per_line = 4;
};

struct PrefixCacheCounters {
  int64_t prompts = 0;
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;   // of prompt_tokens
  int64_t live_resumed = 0;    // prompts continued from the live state, or a snapshot of its line
  int64_t parked_resumed = 0;  // from a parked line
  int64_t disk_resumed = 0;    // from a file
  int64_t snapshots_taken = 0;
  int64_t lines_parked = 0;
  int64_t evictions = 0;  // snapshots and parked lines dropped for lack of room
};

// How much of a prompt needs no computing, as things stand.
struct PrefixMatch {
  enum class Source : uint8_t { kNone, kLive, kParked, kDisk };
  Source source = Source::kNone;
  int64_t tokens = 0;
};

// Belongs to one session; not thread-safe. The ledger and the directory must outlive it.
class PrefixCache {
 public:
  // Reserves `options.budget_bytes` in `ledger` as "prompt cache". Throws kOutOfBudget.
  PrefixCache(const StateLayout& layout, int64_t context, MemoryLedger& ledger,
              PrefixCacheOptions options);
  ~PrefixCache();

  // The bytes that hold one whole line of `context` tokens and its snapshots.
  static uint64_t LineBytes(const StateLayout& layout, int64_t context, int32_t snapshots);

  // Lines are saved to and looked up in `directory` too; nullptr: no longer. Borrowed.
  void SetDirectory(PromptCacheDirectory* directory) { directory_ = directory; }

  // What `Resume` would reuse. `tokens` are those that `state` holds.
  PrefixMatch Match(std::span<const int32_t> prompt, const SequenceState& state,
                    std::span<const int32_t> tokens) const;

  // Makes `state` hold the longest prefix of `prompt`, short of its last token, that is to be had,
  // and `tokens` its ids; parks the line that was live where it would lose
  // min_parked_tokens. Never throws for lack of memory or a damaged file: less is reused then.
  PrefixMatch Resume(std::span<const int32_t> prompt, SequenceState& state,
                     std::vector<int32_t>& tokens);

  // Where a step that begins at `begin` and would end at `end` should end instead, so that a
  // snapshot can be taken at a turn's border: `end`, or a position before it.
  int64_t StepEnd(std::span<const int32_t> prompt, int64_t begin, int64_t end) const;
  // After a prefill step of `prompt`: takes a snapshot where one is due.
  void AfterStep(std::span<const int32_t> prompt, const SequenceState& state);

  // The newest snapshot of the live line; 0: there is none.
  int64_t last_snapshot_position() const;
  // After a step that was broken off: makes `state` and `tokens` what they were at that snapshot,
  // or empty.
  void RestoreLastSnapshot(SequenceState& state, std::vector<int32_t>& tokens);

  // Writes the live line to the directory if it has grown enough since it was last written. False
  // when there was nothing to do. Never throws: a failure is a warning of the directory.
  bool Save(const SequenceState& state, std::span<const int32_t> tokens);

  // The session empties its state: its snapshots belong to nothing any more.
  void ForgetLive();
  // Forgets everything kept; the session's own state is not touched.
  void Clear();

  uint64_t budget_bytes() const { return options_.budget_bytes; }
  uint64_t used_bytes() const;
  size_t parked_lines() const;
  size_t live_snapshots() const;
  const PrefixCacheCounters& counters() const { return counters_; }

 private:
  struct Snapshot;
  struct Line;
  struct Choice;

  Choice Choose(std::span<const int32_t> prompt, const SequenceState& state,
                std::span<const int32_t> tokens) const;
  void DropLive(SequenceState& state, std::vector<int32_t>& tokens);
  void TakeOver(const Choice& choice, SequenceState& state, std::vector<int32_t>& tokens);
  void Park(const SequenceState& state, std::span<const int32_t> tokens, const Line* keep);
  bool MakeRoom(uint64_t bytes, const Line* keep);
  bool SnapshotPays(int64_t border) const;
  void ThinOut();

  const StateLayout layout_;
  const int64_t context_;
  const PrefixCacheOptions options_;
  Reservation reservation_;
  MemoryLedger ledger_;        // of the budget
  const bool rewinds_freely_;  // no snapshot is ever needed
  PromptCacheDirectory* directory_ = nullptr;
  std::vector<std::shared_ptr<Snapshot>> live_;  // of the live line, by position
  std::vector<std::unique_ptr<Line>> parked_;
  uint64_t clock_ = 0;
  int64_t saved_tokens_ = 0;  // of the live line, in the directory
  PrefixCacheCounters counters_;
};

}  // namespace mference
