// The worked example of the format specification as a real directory, and ways to damage it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "format/layout.h"
#include "format/manifest.h"
#include "format/model_directory.h"
#include "format/resident_index.h"

namespace mference {

// A fresh directory that disappears with the object.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string ReadAll(const std::filesystem::path& path);
void WriteAll(const std::filesystem::path& path, std::string_view content);

// Runs `action` and expects an Error of that code; returns its message.
std::string ExpectError(ErrorCode code, const std::function<void()>& action);

ArchConfig ToyArch();
ResidentIndex ToyIndex();
Layout ToyLayout();
std::string ToyWeights();    // model_weights.bin
std::string ToyLayerFile();  // layer_00.bin

// A complete install of the toy. Every edit leaves the hashes in the manifest right, so that the
// damage itself is what a reader meets.
class ToyDirectory {
 public:
  ToyDirectory();

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path File(std::string_view relative) const { return path_ / relative; }

  void EditManifest(const std::function<void(Json&)>& edit);
  void EditLayout(const std::function<void(Json&)>& edit);
  void ReplaceFile(std::string_view relative, std::string_view content);  // and its record
  void PatchFile(std::string_view relative, size_t offset, std::string_view bytes);
  void FlipByte(std::string_view relative, size_t offset);  // behind the manifest's back
  void WriteReceipt() const;
  void EditReceipt(const std::function<void(Json&)>& edit) const;

  ModelDirectory Open(VerifyPolicy policy = VerifyPolicy::kFullSha256, bool defer = false) const;

 private:
  ScratchDirectory scratch_;
  std::filesystem::path path_;
};

// Resolves every manifest to the toy's baseline.
ExpectedModel ResolveToy(const Manifest& manifest, std::string_view config_json);

}  // namespace mference
