#include "engine/prefix_cache.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "engine/prompt_cache_directory.h"

namespace mference {
namespace {

// A line is written again once it has grown by this share of its length, so that a conversation
// writes a bounded multiple of its final size.
constexpr int64_t kSaveGrowth = 16;
// Nothing shorter is worth a file.
constexpr int64_t kMinSavedTokens = 8;

int64_t CommonPrefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

// A prompt's last token is computed in any case, for its logits.
std::span<const int32_t> Reusable(std::span<const int32_t> prompt) {
  return prompt.first(prompt.empty() ? 0 : prompt.size() - 1);
}

}  // namespace

struct PrefixCache::Snapshot {
  StateSnapshot state;
  uint64_t used = 0;

  int64_t position() const { return state.position(); }
};

// A parked conversation: the newest snapshot is that of its end.
struct PrefixCache::Line {
  std::vector<int32_t> tokens;
  StateRows rows;
  std::vector<std::shared_ptr<Snapshot>> snapshots;  // by position
  uint64_t used = 0;
  int64_t saved_tokens = 0;
};

struct PrefixCache::Choice {
  PrefixMatch match;
  const Line* line = nullptr;  // parked
  // To restore before rewinding to match.tokens; null: the live state rewinds as it is.
  std::shared_ptr<Snapshot> snapshot;
  PromptCacheDirectory::Found found;  // disk
};

PrefixCache::PrefixCache(const StateLayout& layout, int64_t context, MemoryLedger& ledger,
                         PrefixCacheOptions options)
    : layout_(layout),
      context_(context),
      options_(std::move(options)),
      reservation_(ledger.Reserve("prompt cache", options_.budget_bytes)),
      ledger_(options_.budget_bytes),
      rewinds_freely_(layout.CanRewind(context, 1, context)) {}
PrefixCache::~PrefixCache() = default;

uint64_t PrefixCache::LineBytes(const StateLayout& layout, int64_t context, int32_t snapshots) {
  return layout.AppendedBytes(context) +
         static_cast<uint64_t>(snapshots) * layout.SnapshotBytes(context, context);
}

uint64_t PrefixCache::used_bytes() const { return ledger_.reserved_bytes(); }
size_t PrefixCache::parked_lines() const { return parked_.size(); }
size_t PrefixCache::live_snapshots() const { return live_.size(); }

void PrefixCache::ForgetLive() {
  live_.clear();
  saved_tokens_ = 0;
}

void PrefixCache::Clear() {
  ForgetLive();
  parked_.clear();
}

// ---- Choosing

namespace {

// The most of a common prefix of `common` tokens that one of `snapshots` leads to.
template <typename Snapshots>
int64_t Reach(const StateLayout& layout, int64_t context, const Snapshots& snapshots,
              int64_t common, typename Snapshots::value_type* best) {
  int64_t reach = 0;
  for (const auto& snapshot : snapshots) {
    int64_t tokens = snapshot->position();
    if (tokens > common) {
      if (!layout.CanRewind(snapshot->state.high_water(), common, context)) continue;
      tokens = common;
    }
    if (tokens <= reach) continue;
    reach = tokens;
    *best = snapshot;
  }
  return reach;
}

}  // namespace

PrefixCache::Choice PrefixCache::Choose(std::span<const int32_t> prompt, const SequenceState& state,
                                        std::span<const int32_t> tokens) const {
  const std::span<const int32_t> reusable = Reusable(prompt);
  Choice best;
  if (state.usable() && state.position() == static_cast<int64_t>(tokens.size())) {
    const int64_t common = CommonPrefix(tokens, reusable);
    if (state.CanRewindTo(common)) {
      best.match.tokens = common;
    } else {
      best.match.tokens = Reach(layout_, context_, live_, common, &best.snapshot);
    }
    if (best.match.tokens > 0) best.match.source = PrefixMatch::Source::kLive;
  }
  for (const std::unique_ptr<Line>& line : parked_) {
    std::shared_ptr<Snapshot> snapshot;
    const int64_t reach =
        Reach(layout_, context_, line->snapshots, CommonPrefix(line->tokens, reusable), &snapshot);
    if (reach <= best.match.tokens) continue;
    best = {.match = {PrefixMatch::Source::kParked, reach},
            .line = line.get(),
            .snapshot = std::move(snapshot),
            .found = {}};
  }
  // Reading a file must pay.
  if (directory_ == nullptr) return best;
  PromptCacheDirectory::Found found = directory_->Find(prompt);
  const int64_t gain = best.match.tokens == 0 ? 1 : options_.min_gain_tokens;
  if (found.tokens >= best.match.tokens + gain) {
    best = {.match = {PrefixMatch::Source::kDisk, found.tokens},
            .line = nullptr,
            .snapshot = nullptr,
            .found = std::move(found)};
  }
  return best;
}

PrefixMatch PrefixCache::Match(std::span<const int32_t> prompt, const SequenceState& state,
                               std::span<const int32_t> tokens) const {
  return Choose(prompt, state, tokens).match;
}

// ---- Resuming

PrefixMatch PrefixCache::Resume(std::span<const int32_t> prompt, SequenceState& state,
                                std::vector<int32_t>& tokens) {
  ++clock_;
  if (!state.usable() || state.position() != static_cast<int64_t>(tokens.size())) {
    DropLive(state, tokens);
  }
  // The end of the system block leads every further prompt: it is in use, however old it is.
  if (!live_.empty()) live_.front()->used = clock_;

  Choice choice = Choose(prompt, state, tokens);
  const int64_t kept = choice.match.source == PrefixMatch::Source::kLive ? choice.match.tokens : 0;
  if (static_cast<int64_t>(tokens.size()) - kept >= options_.min_parked_tokens) {
    Park(state, tokens, choice.line);
  }
  if (choice.match.source == PrefixMatch::Source::kDisk) {
    live_.clear();
    if (directory_->Load(choice.found, state, tokens)) {
      saved_tokens_ = choice.match.tokens;
      ++counters_.disk_resumed;
    } else {
      // The damaged file is gone from the directory, so this ends.
      DropLive(state, tokens);
      return Resume(prompt, state, tokens);
    }
  } else if (choice.match.source == PrefixMatch::Source::kParked) {
    TakeOver(choice, state, tokens);
    ++counters_.parked_resumed;
  } else if (choice.match.source == PrefixMatch::Source::kLive) {
    if (choice.snapshot != nullptr) {
      choice.snapshot->used = clock_;
      state.Restore(choice.snapshot->state);
    }
    ++counters_.live_resumed;
  } else {
    DropLive(state, tokens);
  }
  if (state.position() != choice.match.tokens) state.RewindTo(choice.match.tokens);
  tokens.resize(static_cast<size_t>(choice.match.tokens));
  std::erase_if(live_, [&](const auto& s) { return s->position() > choice.match.tokens; });
  saved_tokens_ = std::min(saved_tokens_, choice.match.tokens);
  ++counters_.prompts;
  counters_.prompt_tokens += static_cast<int64_t>(prompt.size());
  counters_.reused_tokens += choice.match.tokens;
  return choice.match;
}

void PrefixCache::DropLive(SequenceState& state, std::vector<int32_t>& tokens) {
  state.Reset();
  tokens.clear();
  ForgetLive();
}

// Makes a parked line the live one. A line that is continued from its end is no longer parked.
void PrefixCache::TakeOver(const Choice& choice, SequenceState& state,
                           std::vector<int32_t>& tokens) {
  const auto at = std::find_if(parked_.begin(), parked_.end(),
                               [&](const auto& line) { return line.get() == choice.line; });
  Line& line = **at;
  state.RestoreRows(line.rows, std::min(choice.snapshot->position(), line.rows.positions()));
  state.Restore(choice.snapshot->state);
  tokens.assign(line.tokens.begin(), line.tokens.begin() + choice.snapshot->position());
  live_ = line.snapshots;
  saved_tokens_ = line.saved_tokens;
  choice.snapshot->used = clock_;
  line.used = clock_;
  if (choice.match.tokens == static_cast<int64_t>(line.tokens.size())) parked_.erase(at);
}

void PrefixCache::Park(const SequenceState& state, std::span<const int32_t> tokens,
                       const Line* keep) {
  const uint64_t bytes =
      layout_.AppendedBytes(state.position()) + layout_.SnapshotBytes(state.position(), context_);
  if (bytes > options_.budget_bytes) return;
  // What another line holds but for a little needs no copy of its own, neither this nor that.
  const int64_t gain = options_.min_parked_tokens;
  const auto length = static_cast<int64_t>(tokens.size());
  std::shared_ptr<Snapshot> ignored;
  for (const std::unique_ptr<Line>& line : parked_) {
    const int64_t common = CommonPrefix(line->tokens, tokens);
    if (Reach(layout_, context_, line->snapshots, common, &ignored) + gain > length) return;
  }
  std::erase_if(parked_, [&](const std::unique_ptr<Line>& line) {
    if (line.get() == keep) return false;
    const int64_t common = CommonPrefix(line->tokens, tokens);
    const int64_t reach =
        state.CanRewindTo(common) ? common : Reach(layout_, context_, live_, common, &ignored);
    return reach + gain > static_cast<int64_t>(line->tokens.size());
  });
  if (!MakeRoom(bytes, keep)) return;
  auto line = std::make_unique<Line>();
  line->tokens.assign(tokens.begin(), tokens.end());
  line->rows = state.SaveRows(ledger_);
  line->snapshots = live_;
  if (line->snapshots.empty() || line->snapshots.back()->position() != state.position()) {
    auto end = std::make_shared<Snapshot>();
    end->state = state.Snapshot(ledger_);
    end->used = clock_;
    line->snapshots.push_back(std::move(end));
  }
  line->used = clock_;
  line->saved_tokens = saved_tokens_;
  parked_.push_back(std::move(line));
  ++counters_.lines_parked;
}

// ---- Room

// Gives up what was used longest ago until `bytes` fit: a snapshot, or a parked line with all it
// has. Snapshots are older than the line they lead to, so a line first loses those.
bool PrefixCache::MakeRoom(uint64_t bytes, const Line* keep) {
  if (bytes > options_.budget_bytes) return false;
  while (ledger_.available_bytes() < bytes) {
    uint64_t oldest = UINT64_MAX;
    std::vector<std::shared_ptr<Snapshot>>* from = nullptr;  // null: a whole line
    size_t index = 0;
    const auto consider = [&](uint64_t used, std::vector<std::shared_ptr<Snapshot>>* list,
                              size_t at) {
      if (used >= oldest) return;
      oldest = used;
      from = list;
      index = at;
    };
    for (size_t i = 0; i < live_.size(); ++i) consider(live_[i]->used, &live_, i);
    for (size_t i = 0; i < parked_.size(); ++i) {
      Line& line = *parked_[i];
      if (&line == keep) continue;
      for (size_t s = 0; s + 1 < line.snapshots.size(); ++s) {
        consider(line.snapshots[s]->used, &line.snapshots, s);
      }
      consider(line.used, nullptr, i);
    }
    if (oldest == UINT64_MAX) return false;
    if (from != nullptr) {
      from->erase(from->begin() + static_cast<ptrdiff_t>(index));
    } else {
      parked_.erase(parked_.begin() + static_cast<ptrdiff_t>(index));
    }
    ++counters_.evictions;
  }
  return true;
}

// ---- Snapshots

namespace {

// Where snapshots of a prompt pay: at the end of its first turn and before its last, which is the
// reply's; before the last token of a prompt that has no turns.
struct Borders {
  int64_t first = 0;
  int64_t last = 0;
};

Borders BordersOf(std::span<const int32_t> prompt, const std::vector<int32_t>& turn_starts) {
  const auto starts_turn = [&](int32_t id) {
    return std::find(turn_starts.begin(), turn_starts.end(), id) != turn_starts.end();
  };
  const auto first = std::find_if(prompt.begin(), prompt.end(), starts_turn);
  if (first == prompt.end()) return {0, static_cast<int64_t>(prompt.size()) - 1};
  const auto second = std::find_if(first + 1, prompt.end(), starts_turn);
  const auto last = std::find_if(prompt.rbegin(), prompt.rend(), starts_turn).base() - 1;
  return {second == prompt.end() ? 0 : second - prompt.begin(), last - prompt.begin()};
}

}  // namespace

int64_t PrefixCache::last_snapshot_position() const {
  return live_.empty() ? 0 : live_.back()->position();
}

void PrefixCache::RestoreLastSnapshot(SequenceState& state, std::vector<int32_t>& tokens) {
  if (live_.empty()) return DropLive(state, tokens);
  // The step has only added to the rows that the snapshot's positions need.
  state.Restore(live_.back()->state);
  tokens.resize(static_cast<size_t>(state.position()));
  saved_tokens_ = std::min(saved_tokens_, state.position());
}

bool PrefixCache::SnapshotPays(int64_t border) const {
  return !rewinds_freely_ && border - last_snapshot_position() >= options_.min_gain_tokens &&
         layout_.SnapshotBytes(border, context_) <= options_.budget_bytes;
}

int64_t PrefixCache::StepEnd(std::span<const int32_t> prompt, int64_t begin, int64_t end) const {
  if (options_.budget_bytes == 0 || rewinds_freely_) return end;
  const Borders borders = BordersOf(prompt, options_.turn_starts);
  for (const int64_t border : {borders.first, borders.last}) {
    if (border <= begin || border >= end || !SnapshotPays(border)) continue;
    // A ring that can go back from the step's end to the border needs no step of its own.
    if (!layout_.CanRewind(end, border, context_)) return border;
  }
  return end;
}

void PrefixCache::AfterStep(std::span<const int32_t> prompt, const SequenceState& state) {
  if (options_.budget_bytes == 0 || rewinds_freely_) return;
  const int64_t position = state.position();
  const Borders borders = BordersOf(prompt, options_.turn_starts);
  bool due = position - last_snapshot_position() >= options_.spacing_tokens &&
             position < static_cast<int64_t>(prompt.size());
  for (const int64_t border : {borders.first, borders.last}) {
    due = due || (SnapshotPays(border) && state.CanRewindTo(border));
  }
  if (!due || !MakeRoom(layout_.SnapshotBytes(position, context_), nullptr)) return;
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->state = state.Snapshot(ledger_);
  snapshot->used = clock_;
  live_.push_back(std::move(snapshot));
  ++counters_.snapshots_taken;
  ThinOut();
}

void PrefixCache::ThinOut() {
  while (static_cast<int32_t>(live_.size()) > options_.snapshots_per_line) {
    size_t drop = 0;
    int64_t narrowest = INT64_MAX;
    for (size_t i = 1; i + 1 < live_.size(); ++i) {
      const int64_t gap = live_[i + 1]->position() - live_[i - 1]->position();
      if (gap >= narrowest) continue;
      narrowest = gap;
      drop = i;
    }
    live_.erase(live_.begin() + static_cast<ptrdiff_t>(drop));
  }
}

// ---- Disk

bool PrefixCache::Save(const SequenceState& state, std::span<const int32_t> tokens) {
  const auto length = static_cast<int64_t>(tokens.size());
  if (directory_ == nullptr || !state.usable() || state.position() != length) return false;
  if (length < kMinSavedTokens) return false;
  if (length - saved_tokens_ < std::max<int64_t>(1, length / kSaveGrowth)) return false;
  std::vector<const StateSnapshot*> snapshots;
  for (const auto& snapshot : live_) {
    if (snapshot->position() < length) snapshots.push_back(&snapshot->state);
  }
  if (!directory_->Save(state, tokens, snapshots)) return false;
  saved_tokens_ = length;
  return true;
}

}  // namespace mference
