// A model that is ready to run: files opened and verified, memory planned and reserved, weights,
// experts, text and one live session.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "backend/cpu/cpu_backend.h"
#include "base/ledger.h"
#include "base/units.h"
#include "engine/generator.h"
#include "engine/memory_plan.h"
#include "engine/prefill_verifier.h"
#include "engine/prefix_cache.h"
#include "engine/prompt_cache_directory.h"
#include "engine/session.h"
#include "engine/text_layer.h"
#include "engine/weight_mover.h"
#include "experts/expert_io.h"
#include "experts/expert_store.h"
#include "experts/policy_choice.h"
#include "experts/slot_count.h"
#include "experts/slot_memory.h"
#include "format/model_directory.h"
#include "model/model.h"

namespace mference {

// What is kept of earlier prompts, besides the live conversation (see prefix_cache.h).
struct PromptCacheOptions {
  enum class Memory : uint8_t {
    kOff,   // one conversation, and no way back where its state cannot be rewound
    kAuto,  // what the memory plan can spare
  };
  Memory memory = Memory::kOff;
  std::filesystem::path directory;  // prefixes on disk too; empty: none
  uint64_t limit_bytes = 8 * kGiB;  // of the directory
  bool clear = false;               // empty the directory first
  // Every prompt that reuses something is also computed from nothing, in a second state (as large
  // as the session's), and compared; `on_check` receives what came of it.
  bool verify = false;
  std::function<void(const PrefillCheck& check)> on_check = {};
  // Sentences about damaged files and writes that failed.
  std::function<void(const std::string& message)> on_warning = {};
};

struct LoadOptions {
  std::filesystem::path path;                   // a .gturbo directory
  std::optional<uint64_t> memory_budget_bytes;  // none: AutomaticBudget
  int64_t context = 4096;  // clipped to what the model was made for; kAutomaticContext
  int32_t chunk_rows = 0;  // 0: by the memory plan
  SlotRequest slots;
  ExpertIo expert_io = ExpertIo::kAuto;
  CachePolicyKind cache_policy = CachePolicyKind::kNextUse;
  int expert_prefetch = 2;  // most experts read ahead of a token's layer because they are likely
  ElementType kv_type = ElementType::kF16;
  PromptCacheOptions prompt_cache;
  std::vector<LedgerPart> other_parts;  // what else the process will hold; counted in the budget
  bool precise = false;                 // activations in FP32 throughout
  int threads = 0;                      // 0: every processor we may use
  std::string kernels = "auto";
  VerifyPolicy verify = VerifyPolicy::kAuto;
  // Tests and tools may supply their own way to read blobs.
  std::function<std::unique_ptr<BlobReader>(std::span<std::byte> region, uint64_t slot_bytes)>
      make_reader;
  // Records what every layer asked the expert store for.
  std::function<void(int layer, std::span<const int32_t> ids)> on_open;
};

// Not thread-safe: one thread at a time loads, generates and reads counters.
class LoadedModel {
 public:
  // Throws what opening, planning and loading throw, before anything large is claimed.
  static std::unique_ptr<LoadedModel> Load(const LoadOptions& options);

  ~LoadedModel();
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  const ModelDirectory& directory() const { return directory_; }
  const TextLayer& text() const { return *text_; }
  const MemoryPlan& plan() const { return plan_; }
  MemoryLedger& ledger() { return *ledger_; }
  Model& model() { return *model_; }
  Backend& backend() { return *backend_; }
  const ExpertStore& experts() const { return *store_; }
  // The most weights that lie side by side in memory. Not while loading.
  std::span<const std::byte> resident_weights() const;
  void ResetCounters() { store_->ResetCounters(); }
  // Whether the model is one of the catalogue's pinned checkpoints.
  bool pinned() const { return pinned_; }

  // One line each, for people.
  const std::string& kernel_description() const { return kernel_description_; }
  std::string io_description() const;

  // Waits until resident weights and all slots are in memory, from then on nothing faults, and
  // until hashes that still run are done. Throws kChecksumMismatch or kIo. `Generate` need not wait
  // for the former: it finds pages missing now and then, and gets them.
  void FinishLoading();

  // The conversation that `Generate` continues.
  Session& session() { return *session_; }

  // The sampler that `Generate` draws with, for tools that write their own loop.
  Sampler& sampler() { return *sampler_; }

  // What `Generate` would reuse of a prompt.
  PrefixMatch MatchPrefix(std::span<const int32_t> prompt) const;
  // Writes the live conversation to the prompt cache's directory, if there is one and it has grown
  // enough. To be called between generations, when nobody waits.
  void SavePrompt();
  const PrefixCache& prefix_cache() const { return *prefix_cache_; }
  // Null without a directory.
  const PromptCacheDirectory* prompt_cache_directory() const { return cache_directory_.get(); }

  // Generates, and makes sure that what was computed from verified files only is shown: hashes that
  // still run finish before the first token. `request.before_first_token` is called after that.
  GenerationResult Generate(const GenerationRequest& request);

 private:
  explicit LoadedModel(ModelDirectory directory);
  void MakeSession(const LoadOptions& options, std::string_view kernels, SequenceState state);

  ModelDirectory directory_;
  bool pinned_ = false;
  std::unique_ptr<MemoryLedger> ledger_;
  std::vector<Reservation> reservations_;
  MemoryPlan plan_;
  std::optional<TextLayer> text_;
  std::unique_ptr<cpu::CpuBackend> backend_;
  std::unique_ptr<ExpertStore> store_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<PromptCacheDirectory> cache_directory_;
  std::unique_ptr<PrefixCache> prefix_cache_;
  std::unique_ptr<PrefillVerifier> verifier_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Sampler> sampler_;
  std::vector<FileRange> held_weights_;  // what of the weights file stays in memory
  std::string kernel_description_;
  std::string io_reason_;
  // Brings resident weights into memory while other things happen. Last: ends before they go.
  std::shared_future<void> weights_kept_;
  // Moves verified weights while they are in use.
  std::unique_ptr<WeightMover> mover_;
  const HostSlotMemory* slot_memory_ = nullptr;  // the store's
};

// The parts of a plan that are known without loading: what a directory's files say. The budget, the
// context and the requests come from `options`.
MemoryPlanInput PlanInputFor(const LoadOptions& options, uint64_t weight_bytes,
                             uint64_t tokenizer_bytes, int32_t vocab_size);
// Adds what depends on the sequence state: the live one, of `context` tokens, and the prefix cache.
void PlanState(const LoadOptions& options, const StateLayout& layout, int64_t context,
               MemoryPlanInput& input);

}  // namespace mference
