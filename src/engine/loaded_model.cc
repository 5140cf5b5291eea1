#include "engine/loaded_model.h"

#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/machine.h"
#include "base/page_lock.h"
#include "base/sha256.h"
#include "base/units.h"
#include "model/catalogue.h"
#include "model/forward_passes.h"
#include "model/resident_weights.h"

namespace mference {
namespace {

// How far the reads of a wide chunk may run ahead into the next layer: they fill the time in which
// its attention is computed, some tens of milliseconds. See ReadAheadFor in expert_store.cc.
int ChunkPrefetch(int slots) { return std::clamp(slots / 6, 48, 96); }

// Code, libraries, thread stacks, the allocator's slack, small tables, the page cache's own, the
// weights that are held twice while they move, and the page tables of all but the slots.
constexpr uint64_t kProgramBytes = 54 * kMiB;

// Whole conversations that the prefix cache has a use for, where memory is plenty.
constexpr uint64_t kParkedLines = 4;

constexpr const char* kCheckPart = "prompt cache check";

// Everything that decides the bytes of a sequence's state but its layout: files, kernels, types.
std::string StateIdentity(const ModelDirectory& directory, const LoadOptions& options,
                          std::string_view kernels) {
  return fmt::format(
      "manifest {}\nkernels {}{}\nkv {}", Sha256Hex(ManifestToJson(directory.manifest())), kernels,
      options.precise ? " precise" : "", options.kv_type == ElementType::kF16 ? "f16" : "f32");
}

SlotFacts FactsOf(const ModelDirectory& directory) {
  const Layout& layout = directory.layout();
  SlotFacts facts{.experts_per_layer = static_cast<int>(layout.experts_per_layer),
                  .top_k = static_cast<int>(directory.manifest().arch.top_k_experts),
                  .blob_bytes = layout.expert_stride};
  for (const LayerLayout& layer : layout.layers) {
    facts.moe_layers += layer.expert_offsets.empty() ? 0 : 1;
  }
  return facts;
}

// The weights file without `left_out`, in order.
std::vector<FileRange> HeldRanges(const ResidentIndex& index, std::vector<FileRange> left_out) {
  std::sort(left_out.begin(), left_out.end(),
            [](const FileRange& a, const FileRange& b) { return a.offset < b.offset; });
  std::vector<FileRange> held;
  uint64_t begin = 0;
  for (const FileRange& range : left_out) {
    held.push_back({begin, range.offset - begin});
    begin = range.offset + range.bytes;
  }
  held.push_back({begin, index.index_bytes + index.resident_bytes - begin});
  return held;
}

ExpertFiles FilesOf(const ModelDirectory& directory) {
  const Layout& layout = directory.layout();
  return {
      .layers = static_cast<int>(layout.layers.size()),
      .experts_per_layer = static_cast<int>(layout.experts_per_layer),
      .blob_bytes = layout.expert_stride,
      .open_layer = [&directory](int layer) {
        // The directory verifies; the store gets a description of its own, for O_DIRECT.
        directory.LayerFile(layer);
        const std::string name = (directory.path() / directory.layout().LayerPath(layer)).string();
        return LayerFile{
            .file = OpenForReading(name),
            .name = name,
            .blob_offsets = directory.layout().layers[static_cast<size_t>(layer)].expert_offsets};
      }};
}

}  // namespace

MemoryPlanInput PlanInputFor(const LoadOptions& options, uint64_t weight_bytes,
                             uint64_t tokenizer_bytes, int32_t vocab_size) {
  MemoryPlanInput input;
  input.budget_bytes = options.memory_budget_bytes.value_or(AutomaticBudget(ReadMachineMemory()));
  input.fixed = {{"program", kProgramBytes},
                 {"weights", weight_bytes},
                 {"tokenizer", tokenizer_bytes},
                 {"sampler", Sampler::kBytesPerCandidate * static_cast<uint64_t>(vocab_size)}};
  input.fixed.insert(input.fixed.end(), options.other_parts.begin(), options.other_parts.end());
  input.context = options.context;
  input.chunk_rows = options.chunk_rows;
  input.slots = options.slots;
  return input;
}

void PlanState(const LoadOptions& options, const StateLayout& layout, int64_t context,
               MemoryPlanInput& input) {
  input.context = context;
  input.state_bytes = layout.BytesFor(context);
  if (options.prompt_cache.verify) {
    input.fixed.push_back({kCheckPart, layout.BytesFor(context)});
  }
  if (options.prompt_cache.memory == PromptCacheOptions::Memory::kOff) return;
  const int32_t snapshots = PrefixCacheOptions{}.snapshots_per_line;
  input.prompt_cache_bytes = kParkedLines * PrefixCache::LineBytes(layout, context, snapshots);
  // Less would hold neither a snapshot nor a conversation of a quarter of the context.
  input.least_prompt_cache_bytes = PrefixCache::LineBytes(layout, context / 4, 1);
}

LoadedModel::LoadedModel(ModelDirectory directory) : directory_(std::move(directory)) {}
LoadedModel::~LoadedModel() = default;

std::unique_ptr<LoadedModel> LoadedModel::Load(const LoadOptions& requested) {
  LoadOptions options = requested;
  if (options.prompt_cache.clear && options.prompt_cache.directory.empty()) {
    Fail(ErrorCode::kInvalidArgument, "there is no prompt cache to clear: name its directory");
  }
  std::unique_ptr<LoadedModel> loaded(new LoadedModel(ModelDirectory::Open(
      options.path, {.policy = options.verify, .resolve = ResolveModel, .defer_hashing = true})));
  const ModelDirectory& directory = loaded->directory_;
  const ArchConfig& arch = directory.manifest().arch;
  loaded->pinned_ = FindPinnedByModelId(directory.manifest().model_id) != nullptr;

  const std::string config_name = (directory.path() / kConfigFile).string();
  const Json document = ParseJson(directory.ReadSidecar("config.json", kMaxConfigBytes),
                                  config_name, ErrorCode::kManifestCorrupt);
  const JsonReader config(document, config_name, ErrorCode::kManifestCorrupt);
  const int64_t max_context = MaxContext(arch, config);
  loaded->text_.emplace(TextLayer::Load(directory, config));

  const cpu::KernelChoice choice = cpu::SelectKernels(options.kernels);
  if (choice.kernels == nullptr) Fail(ErrorCode::kInvalidArgument, "{}", choice.error);
  auto backend = std::make_unique<cpu::CpuBackend>(
      *choice.kernels, options.threads > 0 ? options.threads : AvailableProcessors(),
      options.precise);
  loaded->kernel_description_ = fmt::format("{}, {} threads{}", choice.kernels->name,
                                            backend->threads(), options.precise ? ", precise" : "");
  const ResidentWeights resident(directory);
  loaded->model_ = MakeModel({.arch = arch,
                              .config = config,
                              .resident = resident,
                              .backend = *backend,
                              .kv_type = options.kv_type});

  MemoryPlanInput input = PlanInputFor(
      options, directory.resident_index().index_bytes + directory.resident_index().resident_bytes,
      loaded->text_->tokenizer().memory_bytes() + Tokenizer::kScratchBytes,
      loaded->model_->vocab_size());
  input.scratch_bytes = [&backend](int32_t rows) { return backend->ScratchBytes(rows); };
  input.slot_facts = FactsOf(directory);
  std::vector<FileRange> tables = backend->TableRanges();
  for (const FileRange& range : tables) input.table_bytes += range.bytes;
  const StateLayout& state_layout = loaded->model_->state_layout();
  options.context =
      options.context == kAutomaticContext
          ? AutomaticContext(input, max_context,
                             [&](int64_t context) { return state_layout.BytesFor(context); })
          : std::min(options.context, max_context);
  PlanState(options, state_layout, options.context, input);
  loaded->plan_ = PlanMemory(input);
  const MemoryPlan& plan = loaded->plan_;

  loaded->ledger_ = std::make_unique<MemoryLedger>(plan.budget_bytes);
  MemoryLedger& ledger = *loaded->ledger_;
  if (plan.tables_in_file_bytes > 0) {
    backend->ReadTablesFromFile();
  } else {
    tables.clear();
  }
  // The fixed parts come first, as the plan has settled them.
  for (const LedgerPart& part : std::span(plan.parts).first(input.fixed.size())) {
    if (part.name == kCheckPart) continue;  // its state reserves it
    loaded->reservations_.push_back(ledger.Reserve(part.name, part.bytes));
  }
  loaded->held_weights_ = HeldRanges(directory.resident_index(), tables);
  const std::vector<FileRange>& held = loaded->held_weights_;
  const bool keep_page_cache = ReadMachineMemory().usable_bytes() >=
                               plan.budget_bytes + directory.resident_index().resident_bytes;
  if (!keep_page_cache) directory.ForgetSidecar("tokenizer.json");
  loaded->weights_kept_ = std::async(std::launch::async, [&directory, &held] {
    for (const FileRange& range : held) KeepPages(directory.Bytes(range));
  });
  loaded->mover_ = std::make_unique<WeightMover>(
      directory.Bytes({0, held.back().offset + held.back().bytes}), directory.weights_file(),
      backend->WeightRanges(), WeightMover::Options{.keep_page_cache = keep_page_cache});
  backend->SetWeightMoves(&loaded->mover_->moves());
  SequenceState state(state_layout, options.context, ledger);
  backend->ReserveScratch(plan.chunk_rows, ledger);

  auto slots = std::make_unique<HostSlotMemory>(ledger, plan.slots, input.slot_facts.blob_bytes);
  loaded->slot_memory_ = slots.get();
  const uint64_t expert_bytes =
      static_cast<uint64_t>(plan.all_experts) * input.slot_facts.blob_bytes;
  const IoChoice io = ChooseIo(options.expert_io, expert_bytes, ReadMachineMemory().usable_bytes());
  std::unique_ptr<BlobReader> reader =
      options.make_reader ? options.make_reader(slots->ReadRegion(), slots->slot_bytes())
                          : MakeBlobReader(io, {}, slots->ReadRegion(), slots->slot_bytes());
  loaded->io_reason_ = io.reason;
  ExpertFiles files = FilesOf(directory);
  auto policy =
      MakeCachePolicy(options.cache_policy, files.layers, files.experts_per_layer, plan.slots);
  const bool holds_all = plan.slots == plan.all_experts;
  loaded->store_ = std::make_unique<ExpertStore>(
      std::move(files), std::move(slots), std::move(policy), std::move(reader),
      ExpertStoreOptions{.top_k = input.slot_facts.top_k,
                         .direct_io = io.direct,
                         .token_prefetch = holds_all ? 0 : options.expert_prefetch,
                         .chunk_prefetch = ChunkPrefetch(plan.slots),
                         .on_open = options.on_open});
  // With full hashing, a file is hashed when it is opened: on its first use.
  if (directory.policy() == VerifyPolicy::kTrustedReceipt) loaded->store_->OpenLayers();
  backend->SetExpertStore(loaded->store_.get());
  loaded->backend_ = std::move(backend);
  loaded->MakeSession(options, choice.kernels->name, std::move(state));
  loaded->sampler_ = std::make_unique<Sampler>(
      std::min(loaded->model_->vocab_size(), loaded->text_->tokenizer().id_limit()),
      static_cast<float>(arch.final_logit_softcap));
  return loaded;
}

void LoadedModel::MakeSession(const LoadOptions& options, std::string_view kernels,
                              SequenceState state) {
  const StateLayout& layout = model_->state_layout();
  const PromptCacheOptions& cache = options.prompt_cache;
  const int64_t context = state.context();
  prefix_cache_ =
      std::make_unique<PrefixCache>(layout, context, *ledger_,
                                    PrefixCacheOptions{.budget_bytes = plan_.prompt_cache_bytes,
                                                       .turn_starts = text_->turn_starts()});
  if (!cache.directory.empty()) {
    if (cache.clear) PromptCacheDirectory::Clear(cache.directory);
    cache_directory_ = std::make_unique<PromptCacheDirectory>(
        cache.directory, cache.limit_bytes, StateIdentity(directory_, options, kernels), layout,
        context, cache.on_warning ? cache.on_warning : [](const std::string&) {});
    prefix_cache_->SetDirectory(cache_directory_.get());
  }
  session_ = std::make_unique<Session>(*model_, std::move(state), plan_.chunk_rows);
  session_->SetPrefixCache(prefix_cache_.get());
  if (cache.verify) {
    verifier_ = std::make_unique<PrefillVerifier>(*model_, SequenceState(layout, context, *ledger_),
                                                  plan_.chunk_rows, cache.on_check);
    session_->SetVerifier(verifier_.get());
  }
}

PrefixMatch LoadedModel::MatchPrefix(std::span<const int32_t> prompt) const {
  return prefix_cache_->Match(prompt, session_->state(), session_->tokens());
}

void LoadedModel::SavePrompt() { prefix_cache_->Save(session_->state(), session_->tokens()); }

std::string LoadedModel::io_description() const {
  return fmt::format("{} ({})", store_->DescribeIo(), io_reason_);
}

void LoadedModel::FinishLoading() {
  slot_memory_->WaitUntilPopulated();
  directory_.FinishVerification();
  mover_->Start(weights_kept_);
  while (mover_->moves().WaitForNew()) backend_->TakeWeightMoves();
}

std::span<const std::byte> LoadedModel::resident_weights() const {
  const FileRange longest =
      *std::max_element(held_weights_.begin(), held_weights_.end(),
                        [](const FileRange& a, const FileRange& b) { return a.bytes < b.bytes; });
  return mover_->copies().empty() ? directory_.Bytes(longest) : mover_->copies();
}

GenerationResult LoadedModel::Generate(const GenerationRequest& request) {
  GenerationRequest verified = request;
  verified.before_first_token = [&] {
    directory_.FinishVerification();
    mover_->Start(weights_kept_);
    if (request.before_first_token) request.before_first_token();
  };
  return mference::Generate(*session_, *sampler_, text_->stops(), verified);
}

}  // namespace mference
