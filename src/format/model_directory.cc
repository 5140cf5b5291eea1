#include "format/model_directory.h"

#include <atomic>
#include <future>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "format/listed_file.h"
#include "format/receipt.h"

namespace mference {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 20;

std::string SidecarPath(std::string_view name) {
  return fmt::format("{}/{}", kTokenizerDirectory, name);
}

// An expert file: opened and verified on first use.
struct LayerSlot {
  std::atomic<bool> ready = false;
  FileDescriptor file;
};

// Row 6. Whatever keeps the receipt from being read is a reason not to trust it.
Receipt LoadReceipt(const DirectoryHandle& directory, std::string_view manifest_sha256) {
  try {
    const std::string name = directory.Name(kReceiptFile);
    Receipt receipt =
        ParseReceipt(ReadTextFile(directory.OpenFile(kReceiptFile), kMaxReceiptBytes, name), name);
    CheckReceiptBinding(receipt, manifest_sha256, directory.path);
    return receipt;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kReceiptInvalid) throw;
    Fail(ErrorCode::kReceiptInvalid,
         "the receipt cannot be used: {}; run `mference verify` to check the files and write one",
         error.what());
  }
}

}  // namespace

struct ModelDirectory::State {
  DirectoryHandle directory;
  Manifest manifest;
  Layout layout;
  ResidentIndex index;
  VerifyPolicy policy = VerifyPolicy::kFullSha256;
  std::string receipt_problem;
  FileDescriptor weights_file;
  FileDescriptor layout_file;  // while opening
  MappedFile weights;

  std::mutex layer_mutex;
  std::vector<LayerSlot> layers;

  std::atomic<bool> stop = false;
  std::shared_future<void> pending;  // the hashes that were put off

  ~State() {
    // The task reads the members.
    stop = true;
    if (pending.valid()) pending.wait();
  }

  void OpenCommonFiles(bool hash_weights);
  void ReadCommonFiles();
  void RequireTrustedLayers() const;
  void HashSidecars();
  void HashWeights();
  HashOptions Interruptible();
  void PrepareLayer(int64_t layer, FileDescriptor& file) const;
};

HashOptions ModelDirectory::State::Interruptible() {
  HashOptions options;
  options.on_progress = [this](uint64_t) {
    if (stop) Fail(ErrorCode::kCancelled, "the verification was cancelled");
  };
  return options;
}

void ModelDirectory::State::HashWeights() {
  RequireHash(weights_file, ListedRecord(manifest, kWeightsFile), directory.Name(kWeightsFile),
              Interruptible());
}

void ModelDirectory::State::HashSidecars() {
  const std::string prefix = SidecarPath("");
  // They have been read: their pages would only be charged to our memory limit.
  HashOptions options = Interruptible();
  options.drop_page_cache = true;
  for (const auto& [path, record] : manifest.files) {
    if (!path.starts_with(prefix)) continue;
    RequireHash(directory.OpenFile(path), record, directory.Name(path), options);
  }
}

// Row 20.
void ModelDirectory::State::OpenCommonFiles(bool hash_weights) {
  weights_file = directory.OpenFile(kWeightsFile);
  RequireSize(weights_file, ListedRecord(manifest, kWeightsFile), directory.Name(kWeightsFile),
              ErrorCode::kChecksumMismatch);
  if (hash_weights) HashWeights();

  const std::string layout_name = directory.Name(kLayoutFile);
  try {
    layout_file = directory.OpenFile(kLayoutFile);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kMissingFile) throw;
    Fail(ErrorCode::kLayoutCorrupt, "{} is missing", layout_name);
  }
  if (const uint64_t bytes = FileSize(layout_file, layout_name); bytes > kMaxLayoutBytes) {
    Fail(ErrorCode::kLayoutCorrupt, "{} has {} bytes, more than the {} allowed", layout_name, bytes,
         kMaxLayoutBytes);
  }
  RequireHash(layout_file, ListedRecord(manifest, kLayoutFile), layout_name);
}

// Rows 21 to 23.
void ModelDirectory::State::ReadCommonFiles() {
  const std::string weights_name = directory.Name(kWeightsFile);
  index = ReadResidentIndex(weights_file, weights_name);
  CheckResidentFileSize(index, FileSize(weights_file, weights_name), weights_name);
  const std::string layout_name = directory.Name(kLayoutFile);
  layout = ReadLayout(layout_file, layout_name);
  layout_file = FileDescriptor();
  CheckLayout(layout, manifest, layout_name);
  weights = MappedFile(weights_file, weights_name);
}

// Row 24. Counts, sizes and offsets of the experts were checked with the layout.
void ModelDirectory::State::RequireTrustedLayers() const {
  const uint64_t needed = manifest.experts_per_layer * manifest.expert_stride;
  for (int64_t layer = 0; layer < manifest.num_layers; ++layer) {
    if (!manifest.HasRoutedExperts(layer)) continue;
    const std::string path = layout.LayerPath(layer);
    const FileRecord& record = ListedRecord(manifest, path);
    const std::string name = directory.Name(path);
    if (record.size != needed) {
      Fail(ErrorCode::kReceiptInvalid, "{}: the manifest says {} bytes, its experts need {}", name,
           record.size, needed);
    }
    RequireSize(directory.OpenFile(path), record, name, ErrorCode::kReceiptInvalid);
  }
}

// Rows 25 and 26.
void ModelDirectory::State::PrepareLayer(int64_t layer, FileDescriptor& file) const {
  const std::string path = layout.LayerPath(layer);
  const FileRecord& record = ListedRecord(manifest, path);
  const std::string name = directory.Name(path);
  FileDescriptor opened = directory.OpenFile(path);
  if (policy == VerifyPolicy::kTrustedReceipt) {
    RequireSize(opened, record, name, ErrorCode::kReceiptInvalid);
  } else {
    RequireHash(opened, record, name);
  }
  const uint64_t needed = manifest.experts_per_layer * manifest.expert_stride;
  if (const uint64_t size = FileSize(opened, name); size < needed) {
    Fail(ErrorCode::kSizeMismatch, "{} has {} bytes, its experts need {}", name, size, needed);
  }
  file = std::move(opened);
}

ModelDirectory::ModelDirectory(std::unique_ptr<State> state) : state_(std::move(state)) {}
ModelDirectory::~ModelDirectory() = default;
ModelDirectory::ModelDirectory(ModelDirectory&&) noexcept = default;
ModelDirectory& ModelDirectory::operator=(ModelDirectory&&) noexcept = default;

ModelDirectory ModelDirectory::Open(const std::filesystem::path& path, const OpenOptions& options) {
  if (!options.resolve) Fail(ErrorCode::kInvalidArgument, "no model resolver was given");
  auto state = std::make_unique<State>();
  DirectoryHandle& directory = state->directory;
  directory = {path, OpenDirectory(path)};
  const ManifestText text = ReadManifestText(directory, kMaxManifestBytes);
  const std::string name = directory.Name(kManifestFile);
  state->manifest = ParseManifest(text.json, name);
  const Manifest& manifest = state->manifest;

  // Runs a step of the trusted policy; under kAuto a receipt that fails is one that is not there.
  state->policy = options.policy == VerifyPolicy::kFullSha256 ? VerifyPolicy::kFullSha256
                                                              : VerifyPolicy::kTrustedReceipt;
  const auto with_receipt = [&](const auto& step) {
    if (state->policy != VerifyPolicy::kTrustedReceipt) return;
    try {
      step();
    } catch (const Error& error) {
      if (options.policy != VerifyPolicy::kAuto) throw;
      state->policy = VerifyPolicy::kFullSha256;
      state->receipt_problem = error.what();
    }
  };
  Receipt receipt;
  with_receipt([&] { receipt = LoadReceipt(directory, text.record.sha256); });
  CheckManifestIdentity(manifest, name);
  const ExpectedModel expected =
      options.resolve(manifest, ReadListedText(directory, manifest, kConfigFile, kMaxConfigBytes));
  CheckManifestArch(manifest, expected.arch, name);
  CheckManifestStructure(manifest, expected.quant_required, name);
  with_receipt([&] { CheckReceiptFiles(receipt, manifest, text.record); });

  state->OpenCommonFiles(!options.defer_hashing);
  state->ReadCommonFiles();
  if (state->policy == VerifyPolicy::kTrustedReceipt) state->RequireTrustedLayers();
  state->layers = std::vector<LayerSlot>(static_cast<size_t>(manifest.num_layers));

  if (options.defer_hashing) {
    State* hashed = state.get();
    state->pending = std::async(std::launch::async, [hashed] {
                       hashed->HashSidecars();
                       hashed->HashWeights();
                     }).share();
  } else {
    state->HashSidecars();
  }
  return ModelDirectory(std::move(state));
}

const std::filesystem::path& ModelDirectory::path() const { return state_->directory.path; }
const Manifest& ModelDirectory::manifest() const { return state_->manifest; }
const Layout& ModelDirectory::layout() const { return state_->layout; }
const ResidentIndex& ModelDirectory::resident_index() const { return state_->index; }
VerifyPolicy ModelDirectory::policy() const { return state_->policy; }
const std::string& ModelDirectory::receipt_problem() const { return state_->receipt_problem; }
const FileDescriptor& ModelDirectory::weights_file() const { return state_->weights_file; }

void ModelDirectory::FinishVerification() const {
  // A copy: waiting on one shared_future object from several threads is a race.
  const std::shared_future<void> pending = state_->pending;
  if (pending.valid()) pending.get();
}

bool ModelDirectory::HasTensor(std::string_view name) const {
  return state_->index.Find(name) != nullptr;
}

const ResidentTensor& ModelDirectory::Tensor(std::string_view name) const {
  const ResidentTensor* tensor = state_->index.Find(name);
  if (tensor == nullptr) {
    Fail(ErrorCode::kTensorNotFound, "{} holds no tensor '{}'",
         state_->directory.Name(kWeightsFile), name);
  }
  return *tensor;
}

std::span<const std::byte> ModelDirectory::Bytes(const FileRange& range) const {
  const std::span<const std::byte> all = state_->weights.bytes();
  Check(range.offset <= all.size() && range.bytes <= all.size() - range.offset,
        "a range outside model_weights.bin");
  return all.subspan(range.offset, range.bytes);
}

const FileDescriptor& ModelDirectory::LayerFile(int64_t layer) const {
  if (layer < 0 || layer >= state_->manifest.num_layers ||
      !state_->manifest.HasRoutedExperts(layer)) {
    Fail(ErrorCode::kInvalidArgument, "layer {} has no routed experts", layer);
  }
  LayerSlot& slot = state_->layers[static_cast<size_t>(layer)];
  if (!slot.ready.load(std::memory_order_acquire)) {
    const std::lock_guard lock(state_->layer_mutex);
    if (!slot.ready.load(std::memory_order_relaxed)) {
      state_->PrepareLayer(layer, slot.file);
      slot.ready.store(true, std::memory_order_release);
    }
  }
  return slot.file;
}

bool ModelDirectory::HasSidecar(std::string_view name) const {
  return state_->manifest.files.contains(SidecarPath(name));
}

std::string ModelDirectory::ReadSidecar(std::string_view name, uint64_t max_bytes) const {
  return ReadListedText(state_->directory, state_->manifest, SidecarPath(name), max_bytes);
}

void ModelDirectory::ForgetSidecar(std::string_view name) const {
  DropPageCache(state_->directory.OpenFile(SidecarPath(name)));
}

}  // namespace mference
