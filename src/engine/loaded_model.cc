#include "engine/loaded_model.h"

#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/machine.h"
#include "base/units.h"
#include "model/catalogue.h"
#include "model/forward_passes.h"
#include "model/resident_weights.h"

namespace mference {
namespace {

// How far the reads of a wide chunk may run ahead into the next layer: they fill the time in which
// its attention is computed, some tens of milliseconds.
constexpr int kChunkPrefetch = 48;

// Code, libraries, thread stacks, the allocator's slack and small tables: measured at 14 to 20 MiB
// of VmHWM for a demo run minus its ledger, rounded up.
constexpr uint64_t kProgramBytes = 32 * kMiB;

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
  input.context = options.context;
  input.chunk_rows = options.chunk_rows;
  input.slots = options.slots;
  return input;
}

LoadedModel::LoadedModel(ModelDirectory directory) : directory_(std::move(directory)) {}
LoadedModel::~LoadedModel() = default;

std::unique_ptr<LoadedModel> LoadedModel::Load(const LoadOptions& requested) {
  LoadOptions options = requested;
  std::unique_ptr<LoadedModel> loaded(new LoadedModel(ModelDirectory::Open(
      options.path, {.policy = options.verify, .resolve = ResolveModel, .defer_hashing = true})));
  const ModelDirectory& directory = loaded->directory_;
  const ArchConfig& arch = directory.manifest().arch;
  loaded->pinned_ = FindPinnedByModelId(directory.manifest().model_id) != nullptr;

  const std::string config_name = (directory.path() / kConfigFile).string();
  const Json document = ParseJson(directory.ReadSidecar("config.json", kMaxConfigBytes),
                                  config_name, ErrorCode::kManifestCorrupt);
  const JsonReader config(document, config_name, ErrorCode::kManifestCorrupt);
  options.context = std::min(options.context, MaxContext(arch, config));
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
  input.state_bytes = loaded->model_->state_layout().BytesFor(options.context);
  input.scratch_bytes = [&backend](int32_t rows) { return backend->ScratchBytes(rows); };
  input.slot_facts = FactsOf(directory);
  loaded->plan_ = PlanMemory(input);
  const MemoryPlan& plan = loaded->plan_;

  loaded->ledger_ = std::make_unique<MemoryLedger>(plan.budget_bytes);
  MemoryLedger& ledger = *loaded->ledger_;
  for (const LedgerPart& part : input.fixed) {
    loaded->reservations_.push_back(ledger.Reserve(part.name, part.bytes));
  }
  loaded->weights_kept_ = std::async(std::launch::async, [&directory] {
    const ResidentIndex& index = directory.resident_index();
    return KeepPages(directory.Bytes({0, index.index_bytes + index.resident_bytes}));
  });
  SequenceState state(loaded->model_->state_layout(), options.context, ledger);
  backend->ReserveScratch(plan.chunk_rows, ledger);

  auto slots = std::make_unique<HostSlotMemory>(ledger, plan.slots, input.slot_facts.blob_bytes);
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
                         .chunk_prefetch = kChunkPrefetch,
                         .on_open = options.on_open});
  // With full hashing, a file is hashed when it is opened: on its first use.
  if (directory.policy() == VerifyPolicy::kTrustedReceipt) loaded->store_->OpenLayers();
  backend->SetExpertStore(loaded->store_.get());
  loaded->backend_ = std::move(backend);
  loaded->session_ = std::make_unique<Session>(*loaded->model_, std::move(state), plan.chunk_rows);
  loaded->sampler_ = std::make_unique<Sampler>(
      std::min(loaded->model_->vocab_size(), loaded->text_->tokenizer().id_limit()),
      static_cast<float>(arch.final_logit_softcap));
  return loaded;
}

std::string LoadedModel::io_description() const {
  return fmt::format("{} ({})", store_->DescribeIo(), io_reason_);
}

void LoadedModel::FinishLoading() {
  if (weights_kept_.valid()) weights_kept_.wait();
  directory_.FinishVerification();
}

GenerationResult LoadedModel::Generate(const GenerationRequest& request) {
  GenerationRequest verified = request;
  verified.before_first_token = [&] {
    FinishLoading();
    if (request.before_first_token) request.before_first_token();
  };
  return mference::Generate(*session_, *sampler_, text_->stops(), verified);
}

}  // namespace mference
