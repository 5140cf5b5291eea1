#include "install/install_paths.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>

#include "base/error.h"
#include "base/json.h"
#include "format/receipt.h"

namespace mference {
namespace {

constexpr uint64_t kMaxLockBytes = 4096;

std::string_view Environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? std::string_view() : std::string_view(value);
}

std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : "unknown";
}

// "process 4711 on HOST since 2026-08-14T10:00:00Z", or less when the file does not say.
std::string HolderOf(FileSystem& files, const std::filesystem::path& lock) {
  try {
    const Json holder = ParseJson(ReadWholeFile(files, lock, kMaxLockBytes), lock.string(),
                                  ErrorCode::kInstallState);
    return fmt::format("process {} on {} since {}", holder.at("pid").get<int64_t>(),
                       holder.at("host").get<std::string>(), holder.at("since").get<std::string>());
  } catch (const std::exception&) {
    return "another process";
  }
}

}  // namespace

std::filesystem::path MferenceHome() {
  if (const auto home = Environment("MFERENCE_HOME"); !home.empty()) return home;
  if (const auto data = Environment("XDG_DATA_HOME"); !data.empty()) {
    return std::filesystem::path(data) / "mference";
  }
  if (const auto home = Environment("HOME"); !home.empty()) {
    return std::filesystem::path(home) / ".local" / "share" / "mference";
  }
  Fail(ErrorCode::kInvalidArgument,
       "no place for models: set MFERENCE_HOME, XDG_DATA_HOME or HOME to a directory");
}

std::filesystem::path ModelsDirectory() { return MferenceHome() / "models"; }

void RequireModelName(std::string_view name) {
  const auto alphanumeric = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  const bool valid = !name.empty() && name.size() <= 100 && alphanumeric(name.front()) &&
                     std::all_of(name.begin(), name.end(), [&](char c) {
                       return alphanumeric(c) || c == '.' || c == '_' || c == '-';
                     });
  if (!valid) {
    Fail(ErrorCode::kInvalidArgument,
         "'{}' is not a model name: use letters, digits, '.', '_' and '-', a letter or digit first",
         name);
  }
}

std::filesystem::path ModelPath(std::string_view name) {
  RequireModelName(name);
  return ModelsDirectory() / fmt::format("{}.gturbo", name);
}

InstallPaths InstallPaths::For(FileSystem& files, const std::filesystem::path& output) {
  std::filesystem::path absolute = std::filesystem::absolute(output).lexically_normal();
  if (!absolute.has_filename()) absolute = absolute.parent_path();  // a trailing slash
  const std::string name = absolute.filename().string();
  if (name.empty() || name == "." || name == "..") {
    Fail(ErrorCode::kInvalidArgument, "'{}' cannot be the name of an install", output.string());
  }
  InstallPaths paths;
  paths.parent = files.MakeDirectories(absolute.parent_path());
  paths.final_directory = paths.parent / name;
  paths.partial = paths.parent / (name + ".partial");
  paths.checkpoint = paths.parent / (name + ".resume.json");
  paths.lock = paths.parent / (name + ".install.lock");
  paths.seal = paths.parent / (name + ".ranges.json");
  paths.replaced = paths.parent / (name + ".replaced");

  const auto require = [&](const std::filesystem::path& path, EntryType type) {
    const EntryType found = files.Examine(path);
    if (found != EntryType::kNone && found != type) {
      Fail(ErrorCode::kInstallState, "unsafe installer path: {} is not a {}; move it away",
           path.string(), type == EntryType::kFile ? "regular file" : "directory");
    }
  };
  for (const auto& path : {paths.final_directory, paths.partial, paths.replaced}) {
    require(path, EntryType::kDirectory);
  }
  for (const auto& path : {paths.checkpoint, paths.lock, paths.seal}) {
    require(path, EntryType::kFile);
  }
  return paths;
}

std::unique_ptr<FileLock> LockInstall(FileSystem& files, const InstallPaths& paths) {
  std::unique_ptr<FileLock> lock = files.TryLock(paths.lock);
  if (lock == nullptr) {
    Fail(ErrorCode::kInstallState, "another installer holds {}: {}; wait for it or stop it",
         paths.lock.string(), HolderOf(files, paths.lock));
  }
  lock->Describe(
      Json{{"pid", getpid()}, {"host", HostName()}, {"since", FormatTimestamp(std::time(nullptr))}}
          .dump() +
      "\n");
  return lock;
}

}  // namespace mference
