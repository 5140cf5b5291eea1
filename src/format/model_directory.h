// An opened .gturbo directory: everything about it that does not depend on the model family.
//
// Opening runs the checks of the format in the format's order, so that a damaged directory always
// fails with the same code. Files are opened relative to the directory's descriptor and never
// through symbolic links.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "format/layout.h"
#include "format/manifest.h"
#include "format/resident_index.h"

namespace mference {

enum class VerifyPolicy {
  kFullSha256,      // the common files now, each layer file on its first use
  kTrustedReceipt,  // the common files now; layer files by the receipt and their size
  kAuto,            // trusted-receipt if a valid receipt binds, else full-sha256
};

// Says what the manifest's `arch` must be, from the installed config.json. Throws `Error` for a
// model that it does not know.
using ModelResolver =
    std::function<ExpectedModel(const Manifest& manifest, std::string_view config_json)>;

struct OpenOptions {
  VerifyPolicy policy = VerifyPolicy::kAuto;
  ModelResolver resolve;  // required
  // Hash model_weights.bin and the tokenizer's files on a background thread; the caller must call
  // `FinishVerification` before it lets anything out that was computed from them.
  bool defer_hashing = false;
};

// Thread-safe, except for moving and destruction.
class ModelDirectory {
 public:
  static ModelDirectory Open(const std::filesystem::path& path, const OpenOptions& options);

  ~ModelDirectory();  // stops a background hash
  ModelDirectory(ModelDirectory&&) noexcept;
  ModelDirectory& operator=(ModelDirectory&&) noexcept;

  const std::filesystem::path& path() const;
  const Manifest& manifest() const;
  const Layout& layout() const;
  const ResidentIndex& resident_index() const;
  // kFullSha256 or kTrustedReceipt; under kAuto the one that was chosen.
  VerifyPolicy policy() const;
  // Under kAuto: why the receipt was not used, for the user; else empty.
  const std::string& receipt_problem() const;

  // Waits for the hashes that `defer_hashing` put off. Throws kChecksumMismatch or kIo, again on
  // every call; returns at once when nothing was put off.
  void FinishVerification() const;

  // Throws kTensorNotFound.
  const ResidentTensor& Tensor(std::string_view name) const;
  bool HasTensor(std::string_view name) const;
  // The mapped bytes of a range of model_weights.bin. No alignment beyond two bytes.
  std::span<const std::byte> Bytes(const FileRange& range) const;
  // model_weights.bin itself, for readers that upload or rearrange.
  const FileDescriptor& weights_file() const;

  // The layer's expert file, verified by the policy the first time. Concurrent first uses wait for
  // one verification. Throws kMissingFile, kChecksumMismatch, kReceiptInvalid, kSizeMismatch; a
  // failure is not remembered as success. kInvalidArgument for a layer without routed experts.
  const FileDescriptor& LayerFile(int64_t layer) const;

  // A file under tokenizer/, e.g. "tokenizer.json", hashed as it is read. `HasSidecar` says whether
  // the manifest lists it; reading one that it does not list is kMissingFile.
  bool HasSidecar(std::string_view name) const;
  std::string ReadSidecar(std::string_view name, uint64_t max_bytes) const;
  // Lets the page cache forget a sidecar that will not be read again.
  void ForgetSidecar(std::string_view name) const;

 private:
  struct State;
  explicit ModelDirectory(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace mference
