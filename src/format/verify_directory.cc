#include "format/verify_directory.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "format/listed_file.h"
#include "format/receipt.h"

namespace mference {
namespace {

constexpr uint64_t kMaxMetadataBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 20;

// Hashes the listed files on a few threads; each takes the next file in path order.
class FileChecker {
 public:
  FileChecker(const DirectoryHandle& directory, const FileTable& files,
              const VerifyOptions& options)
      : directory_(directory), options_(options), files_(files.begin(), files.end()) {
    problems_.resize(files_.size());
    for (const auto& [path, record] : files_) progress_.bytes_total += record.size;
  }

  // The problems by path. Rethrows what the progress callback threw.
  std::vector<FileProblem> Run() {
    std::vector<std::thread> threads;
    const auto count = static_cast<size_t>(std::max(1, options_.threads));
    threads.reserve(count);
    for (size_t i = 0; i < count; ++i) threads.emplace_back([this] { Work(); });
    for (std::thread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
    std::vector<FileProblem> found;
    for (auto& problem : problems_) {
      if (problem) found.push_back(std::move(*problem));
    }
    return found;
  }

 private:
  void Work() {
    try {
      for (size_t i = next_++; i < files_.size() && !stop_; i = next_++) CheckFile(i);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      stop_ = true;
    }
  }

  void CheckFile(size_t number) {
    const std::string& path = files_[number].first;
    const FileRecord& record = files_[number].second;
    HashOptions hash;
    hash.drop_page_cache = true;
    uint64_t reported = 0;
    hash.on_progress = [&, this](uint64_t bytes) {
      reported += bytes;
      Advance(path, bytes);
    };
    try {
      RequireHash(directory_.OpenFile(path), record, directory_.Name(path), hash);
    } catch (const Error& error) {
      if (stop_) throw;
      problems_[number] = FileProblem{path, error.code(), error.what()};
    }
    if (record.size > reported) Advance(path, record.size - reported);
  }

  void Advance(std::string_view path, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (stop_) Fail(ErrorCode::kCancelled, "the verification was stopped");
    progress_.bytes_done += bytes;
    progress_.file = path;
    if (!options_.on_progress) return;
    try {
      options_.on_progress(progress_);
    } catch (...) {
      // First, so that nobody takes what was thrown for a problem of the file.
      failure_ = std::current_exception();
      stop_ = true;
      throw;
    }
  }

  const DirectoryHandle& directory_;
  const VerifyOptions& options_;
  const std::vector<std::pair<std::string, FileRecord>> files_;
  std::vector<std::optional<FileProblem>> problems_;  // [files_]
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  VerifyProgress progress_;
  std::exception_ptr failure_;
};

// What is in the tree and in no list. tokenizer/ and .DS_Store are nobody's business.
std::vector<std::string> UnexpectedEntries(const std::filesystem::path& root,
                                           const FileTable& files) {
  constexpr size_t kMaxReported = 1000;
  std::vector<std::string> unexpected;
  const auto holds_listed = [&](const std::string& directory) {
    const auto next = files.lower_bound(directory + "/");
    return next != files.end() && next->first.starts_with(directory + "/");
  };
  std::error_code error;
  std::filesystem::recursive_directory_iterator entry(root, error);
  for (; !error && entry != std::filesystem::recursive_directory_iterator();
       entry.increment(error)) {
    const std::string path = entry->path().lexically_relative(root).generic_string();
    if (entry->path().filename() == ".DS_Store") continue;
    if (entry->is_directory() && !entry->is_symlink()) {
      if (path == kTokenizerDirectory) {
        entry.disable_recursion_pending();
      } else if (!holds_listed(path)) {
        entry.disable_recursion_pending();
        unexpected.push_back(path + "/");
      }
    } else if (!files.contains(path) && path != kManifestFile && path != kReceiptFile) {
      unexpected.push_back(path);
    }
    if (unexpected.size() >= kMaxReported) break;
  }
  if (error) {
    Fail(ErrorCode::kIo, "cannot list {}: {}", root.string(), error.message());
  }
  std::sort(unexpected.begin(), unexpected.end());
  return unexpected;
}

bool HasProblem(const std::vector<FileProblem>& problems, std::string_view path) {
  return std::any_of(problems.begin(), problems.end(),
                     [&](const FileProblem& problem) { return problem.path == path; });
}

// Files that carry the right hash but were written wrong. Ranges against actual sizes: the layout
// fits the listed sizes, and a file of another size is among the problems.
void CheckStructure(const DirectoryHandle& directory, const Manifest& manifest,
                    const std::vector<FileProblem>& problems) {
  if (!HasProblem(problems, kWeightsFile)) {
    const FileDescriptor file = directory.OpenFile(kWeightsFile);
    const std::string name = directory.Name(kWeightsFile);
    CheckResidentFileSize(ReadResidentIndex(file, name), FileSize(file, name), name);
  }
  if (!HasProblem(problems, kLayoutFile)) {
    const std::string name = directory.Name(kLayoutFile);
    const Layout layout = ReadLayout(directory.OpenFile(kLayoutFile), name);
    CheckLayout(layout, manifest, name);
    for (int64_t layer = 0; layer < manifest.num_layers; ++layer) {
      if (manifest.HasRoutedExperts(layer)) ListedRecord(manifest, layout.LayerPath(layer));
    }
  }
}

// Where the files came from, if a receipt that is still valid in every respect says so.
void CarryProvenance(const DirectoryHandle& directory, const Manifest& manifest,
                     const FileRecord& manifest_record, Receipt& receipt) {
  try {
    const std::string name = directory.Name(kReceiptFile);
    const Receipt old =
        ParseReceipt(ReadTextFile(directory.OpenFile(kReceiptFile), kMaxMetadataBytes, name), name);
    CheckReceiptBinding(old, manifest_record.sha256, directory.path);
    CheckReceiptFiles(old, manifest, manifest_record);
    if (old.tool_version != kInstallToolVersion && old.tool_version != kVerifyToolVersion) return;
    receipt.source_repo_id = old.source_repo_id;
    receipt.source_revision = old.source_revision;
  } catch (const Error&) {
    // No receipt, or one that no longer holds: the new one starts without provenance.
  }
}

}  // namespace

VerifyReport VerifyDirectory(const std::filesystem::path& path, const VerifyOptions& options) {
  const DirectoryHandle directory{path, OpenDirectory(path)};
  const ManifestText text = ReadManifestText(directory, kMaxMetadataBytes);
  const std::string name = directory.Name(kManifestFile);
  const Manifest manifest = ParseManifest(text.json, name);
  CheckManifestIdentity(manifest, name);

  VerifyReport report;
  report.problems = FileChecker(directory, manifest.files, options).Run();
  ExpectedModel expected;
  if (options.resolve && !HasProblem(report.problems, kConfigFile)) {
    expected = options.resolve(manifest,
                               ReadListedText(directory, manifest, kConfigFile, kMaxConfigBytes));
    CheckManifestArch(manifest, expected.arch, name);
  }
  CheckManifestStructure(manifest, expected.quant_required, name);
  CheckStructure(directory, manifest, report.problems);
  report.file_count = manifest.files.size() + 1;
  report.bytes = text.record.size;
  for (const auto& [file, record] : manifest.files) report.bytes += record.size;
  report.unexpected = UnexpectedEntries(path, manifest.files);
  if (!report.ok() || !options.write_receipt) return report;

  Receipt receipt = MakeReceipt(manifest, text.json, path, kVerifyToolVersion, std::time(nullptr));
  CarryProvenance(directory, manifest, text.record, receipt);
  report.receipt = path / kReceiptFile;
  WriteFileAtomically(report.receipt, ReceiptToJson(receipt));
  return report;
}

}  // namespace mference
