#include "install/sidecars.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/sha256.h"
#include "base/units.h"

namespace mference {
namespace {

constexpr Sidecar kSidecars[] = {
    {"tokenizer.json", 64 * kMiB, true},   {"tokenizer_config.json", 4 * kMiB, true},
    {"special_tokens_map.json", 1 * kMiB}, {"chat_template.jinja", 4 * kMiB},
    {"chat_template.json", 4 * kMiB},      {"generation_config.json", 64 * kKiB},
};

// A new file, written front to back and hashed on the way.
class HashedFile {
 public:
  HashedFile(FileSystem& files, const FileSystem::Path& path) {
    if (files.Examine(path) != EntryType::kNone) files.RemoveFile(path);
    file_ = files.CreateFile(path, 0644);
  }
  void Append(std::span<const std::byte> bytes) {
    file_->WriteAt(size_, bytes);
    hash_.Update(bytes);
    size_ += bytes.size();
  }
  FileRecord Finish() {
    file_->Sync();
    return {.size = size_, .sha256 = hash_.FinishHex()};
  }

 private:
  std::unique_ptr<File> file_;
  Sha256 hash_;
  uint64_t size_ = 0;
};

FileRecord CopySidecar(FetchedRange& source, FileSystem& files, const FileSystem::Path& path,
                       std::span<std::byte> scratch) {
  HashedFile file(files, path);
  for (uint64_t done = 0; done < source.bytes(); done += scratch.size()) {
    const auto tile = scratch.first(std::min<uint64_t>(scratch.size(), source.bytes() - done));
    source.ReadAt(done, tile);
    file.Append(tile);
  }
  return file.Finish();
}

}  // namespace

std::span<const Sidecar> Sidecars() { return kSidecars; }

void RequireSidecars(SnapshotSource& source) {
  for (const Sidecar& sidecar : kSidecars) {
    if (sidecar.required && !source.HasFile(std::string(sidecar.name))) {
      Fail(ErrorCode::kSourceInvalid, "the source has no {}, without which no text can be read",
           sidecar.name);
    }
  }
}

FileRecord WriteLayoutFile(FileSystem& files, const FileSystem::Path& directory,
                           const Layout& layout) {
  HashedFile file(files, directory / kLayoutFile);
  // The writer's pieces are small; one system call for many of them.
  std::string buffer;
  const auto flush = [&] {
    file.Append(std::as_bytes(std::span(buffer)));
    buffer.clear();
  };
  WriteLayout(layout, [&](std::string_view piece) {
    buffer += piece;
    if (buffer.size() >= 64 * kKiB) flush();
  });
  flush();
  return file.Finish();
}

FileTable InstallSidecars(SnapshotSource& source, std::string_view config_json, FileSystem& files,
                          const FileSystem::Path& directory, std::span<std::byte> scratch) {
  const FileSystem::Path tokenizer = directory / kTokenizerDirectory;
  RemoveTree(files, tokenizer);
  files.CreateDirectory(tokenizer);
  FileTable records;
  WriteWholeFile(files, directory / kConfigFile, config_json);
  records.emplace(std::string(kConfigFile),
                  FileRecord{.size = config_json.size(), .sha256 = Sha256Hex(config_json)});
  for (const Sidecar& sidecar : kSidecars) {
    const std::unique_ptr<FetchedRange> bytes =
        source.FetchFile(std::string(sidecar.name), sidecar.max_bytes);
    if (bytes == nullptr) continue;
    const std::string path = fmt::format("{}/{}", kTokenizerDirectory, sidecar.name);
    records.emplace(path, CopySidecar(*bytes, files, directory / path, scratch));
  }
  return records;
}

}  // namespace mference
