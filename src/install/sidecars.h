// The small files of an install: layout.json, and what the tokenizer and the chat need.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "format/layout.h"
#include "format/manifest.h"
#include "install/file_system.h"
#include "install/source.h"

namespace mference {

struct Sidecar {
  std::string_view name;
  uint64_t max_bytes = 0;
  bool required = false;
};
// config.json aside, which is written from what the plan was made with.
std::span<const Sidecar> Sidecars();

// Fails now rather than after the payload: kSourceInvalid naming a required file that is missing.
void RequireSidecars(SnapshotSource& source);

// Streams layout.json out and flushes it.
FileRecord WriteLayoutFile(FileSystem& files, const FileSystem::Path& directory,
                           const Layout& layout);

// Writes DIRECTORY/tokenizer/: config.json and every sidecar that the source has. Each is flushed;
// the directory is the caller's to flush. Returns their records by path.
FileTable InstallSidecars(SnapshotSource& source, std::string_view config_json, FileSystem& files,
                          const FileSystem::Path& directory, std::span<std::byte> scratch);

}  // namespace mference
