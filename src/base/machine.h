// What this machine, and the container around this process, can give.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace mference {

struct MachineMemory {
  uint64_t total_bytes = 0;      // RAM of the machine
  uint64_t available_bytes = 0;  // the kernel's estimate of what can be taken without swapping
  // The tightest memory limit of the control groups this process is in, and what is charged there
  // already (page cache that can be dropped not counted).
  std::optional<uint64_t> cgroup_limit_bytes = std::nullopt;
  uint64_t cgroup_used_bytes = 0;

  // What can still be taken: the smaller of `available_bytes` and the room under the cgroup limit.
  uint64_t usable_bytes() const;
};

// Reads /proc and the cgroup hierarchy (v1 or v2). `root` replaces "/" in tests. Never throws for
// missing files: what cannot be read counts as no limit.
MachineMemory ReadMachineMemory(const std::filesystem::path& root = "/");

// Memory of this process, in bytes, as the kernel counts it now and at its peak.
struct ProcessMemory {
  uint64_t resident_bytes = 0;       // VmRSS: anonymous and mapped pages
  uint64_t peak_resident_bytes = 0;  // VmHWM
};
ProcessMemory ReadProcessMemory(const std::filesystem::path& root = "/");

// What the kernel charges to this process's memory control group: page cache that it brought in
// included, and what else runs in the group.
struct GroupCharge {
  uint64_t bytes = 0;       // now
  uint64_t peak_bytes = 0;  // since the group began; 0 where the kernel does not keep it
  uint64_t anonymous_bytes = 0;
  uint64_t file_bytes = 0;  // page cache, mapped files included
  uint64_t limit_hits = 0;  // times the limit was met and something had to be reclaimed
};
// Nothing outside of any group but the root's.
std::optional<GroupCharge> ReadGroupCharge(const std::filesystem::path& root = "/");

// Processors this process may run on.
int AvailableProcessors();

}  // namespace mference
