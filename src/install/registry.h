// The models on this machine: list, find, remove.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/arch_config.h"

namespace mference {

struct InstalledModel {
  std::string name;  // without ".gturbo"
  std::filesystem::path directory;
  std::string model_id;
  Family family = Family::kGemma4;
  bool pinned = false;
  uint64_t bytes = 0;   // of all listed files
  std::string problem;  // why it does not count as installed; the rest is then unknown
};

// A download that has begun and not finished.
struct UnfinishedModel {
  std::string name;
  std::string repository;
  uint64_t completed_bytes = 0;
  uint64_t total_bytes = 0;
};

struct ModelListing {
  std::vector<InstalledModel> installed;    // by name
  std::vector<UnfinishedModel> unfinished;  // by name
};

// Everything in `models`; a directory that does not exist is empty. A damaged entry is listed with
// its problem rather than failing the listing.
ModelListing ListModels(const std::filesystem::path& models);

// The directory that MODEL on a command line means: a path (one that exists, or anything with a
// slash or ending in ".gturbo"), else an installed name or a pinned model's alias. kNotFound says
// what is installed and how to install it.
std::filesystem::path ResolveInstalled(std::string_view model, const std::filesystem::path& models);

// Removes an installed model and everything beside it. Refuses (kInstallState) while an installer
// holds it, kNotFound when nothing of it is there.
void RemoveModel(const std::filesystem::path& directory);

}  // namespace mference
