// Offline verification of a whole .gturbo directory, which also renews its receipt.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "format/model_directory.h"

namespace mference {

struct VerifyProgress {
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
  std::string_view file;  // the one that just advanced
};

struct VerifyOptions {
  int threads = 2;
  // Called from the hashing threads, one at a time. May throw to stop the whole run.
  std::function<void(const VerifyProgress&)> on_progress;
  // When given, `arch` is checked as at load time.
  ModelResolver resolve;
  bool write_receipt = true;
};

struct FileProblem {
  std::string path;  // in the directory
  ErrorCode code = ErrorCode::kChecksumMismatch;
  std::string message;
};

struct VerifyReport {
  uint64_t file_count = 0;  // manifest.json included
  uint64_t bytes = 0;
  std::vector<FileProblem> problems;    // by path; empty: the directory is intact
  std::vector<std::string> unexpected;  // entries that nothing lists; a directory ends in '/'
  std::filesystem::path receipt;        // where it was written; empty: it was not

  bool ok() const { return problems.empty(); }
};

// Checks manifest and layout (throws their errors), then the size and SHA-256 of every listed file
// (collected in the report, so that a repair knows what to fetch). If all is well, writes a fresh
// receipt, keeping the provenance of a receipt that was still valid.
VerifyReport VerifyDirectory(const std::filesystem::path& path, const VerifyOptions& options = {});

}  // namespace mference
