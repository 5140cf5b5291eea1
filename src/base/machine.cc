#include "base/machine.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

namespace mference {
namespace {

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A plain number in a file of its own; "max" and anything unreadable is none.
std::optional<uint64_t> ReadNumber(const std::filesystem::path& path) {
  const std::string text = ReadAll(path);
  uint64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc()) return std::nullopt;
  return number;
}

// The value after "KEY" at the start of a line, in its own unit.
uint64_t FieldOf(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const size_t digit = line.find_first_of("0123456789", key.size());
    if (digit == std::string::npos) continue;
    uint64_t number = 0;
    std::from_chars(line.data() + digit, line.data() + line.size(), number);
    return number;
  }
  return 0;
}

// Limits of this process's group and of all its ancestors below `mount`.
void ApplyLimits(const std::filesystem::path& mount, std::string group, const char* limit_file,
                 const char* used_file, const char* inactive_key, MachineMemory& memory) {
  // Above any real RAM: cgroup v1 writes "no limit" as 2^63 rounded down to a page.
  constexpr uint64_t kUnlimited = uint64_t{1} << 60;
  while (true) {
    const std::filesystem::path directory = mount / std::filesystem::path(group).relative_path();
    const std::optional<uint64_t> limit = ReadNumber(directory / limit_file);
    if (limit && *limit < kUnlimited &&
        (!memory.cgroup_limit_bytes || *limit < *memory.cgroup_limit_bytes)) {
      const uint64_t used = ReadNumber(directory / used_file).value_or(0);
      const uint64_t droppable = FieldOf(ReadAll(directory / "memory.stat"), inactive_key);
      memory.cgroup_limit_bytes = limit;
      memory.cgroup_used_bytes = used - std::min(used, droppable);
    }
    const size_t slash = group.rfind('/');
    if (group.empty() || group == "/" || slash == std::string::npos) return;
    group.resize(slash);
  }
}

struct MemoryGroup {
  std::string path;  // "/" for the root
  bool is_v2 = false;
};

// The groups of this process that a memory controller may act on.
std::vector<MemoryGroup> MemoryGroups(const std::filesystem::path& root) {
  std::vector<MemoryGroup> groups;
  std::istringstream lines(ReadAll(root / "proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    // hierarchy:controllers:path
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_v2 = controllers.empty();
    if (is_v2 || ("," + controllers + ",").find(",memory,") != std::string::npos) {
      groups.push_back({line.substr(second + 1), is_v2});
    }
  }
  return groups;
}

}  // namespace

uint64_t MachineMemory::usable_bytes() const {
  if (!cgroup_limit_bytes) return available_bytes;
  const uint64_t room = *cgroup_limit_bytes - std::min(*cgroup_limit_bytes, cgroup_used_bytes);
  return std::min(available_bytes, room);
}

MachineMemory ReadMachineMemory(const std::filesystem::path& root) {
  MachineMemory memory;
  const std::string info = ReadAll(root / "proc/meminfo");
  memory.total_bytes = FieldOf(info, "MemTotal:") * 1024;
  memory.available_bytes = FieldOf(info, "MemAvailable:") * 1024;

  for (const auto& [group, is_v2] : MemoryGroups(root)) {
    if (is_v2) {
      ApplyLimits(root / "sys/fs/cgroup", group, "memory.max", "memory.current", "inactive_file",
                  memory);
      ApplyLimits(root / "sys/fs/cgroup", group, "memory.high", "memory.current", "inactive_file",
                  memory);
    } else {
      ApplyLimits(root / "sys/fs/cgroup/memory", group, "memory.limit_in_bytes",
                  "memory.usage_in_bytes", "total_inactive_file", memory);
    }
  }
  return memory;
}

ProcessMemory ReadProcessMemory(const std::filesystem::path& root) {
  const std::string status = ReadAll(root / "proc/self/status");
  return {.resident_bytes = FieldOf(status, "VmRSS:") * 1024,
          .peak_resident_bytes = FieldOf(status, "VmHWM:") * 1024};
}

std::optional<GroupCharge> ReadGroupCharge(const std::filesystem::path& root) {
  for (const auto& [group, v2_hierarchy] : MemoryGroups(root)) {
    if (group == "/") continue;
    const bool is_v2 = v2_hierarchy;  // Clang 14 lets no lambda use a structured binding
    const std::filesystem::path directory = root /
                                            (is_v2 ? "sys/fs/cgroup" : "sys/fs/cgroup/memory") /
                                            std::filesystem::path(group).relative_path();
    const std::optional<uint64_t> now =
        ReadNumber(directory / (is_v2 ? "memory.current" : "memory.usage_in_bytes"));
    if (!now) continue;
    const auto number = [&](const char* v2, const char* v1) {
      return ReadNumber(directory / (is_v2 ? v2 : v1)).value_or(0);
    };
    const std::string stat = ReadAll(directory / "memory.stat");
    const auto field = [&](const char* v2, const char* v1) {
      return FieldOf(stat, is_v2 ? v2 : v1);
    };
    return GroupCharge{.bytes = *now,
                       .peak_bytes = number("memory.peak", "memory.max_usage_in_bytes"),
                       .anonymous_bytes = field("anon ", "total_rss "),
                       .file_bytes = field("file ", "total_cache "),
                       .limit_hits = is_v2 ? FieldOf(ReadAll(directory / "memory.events"), "max ")
                                           : ReadNumber(directory / "memory.failcnt").value_or(0)};
  }
  return std::nullopt;
}

int AvailableProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace mference
