// The one place that knows which instruction sets this build has and this CPU runs.
#include <array>
#include <limits>

#include "backend/cpu/kernels.h"
#include "backend/cpu/tables.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#endif

namespace mference::cpu {
namespace {

struct Candidate {
  const char* name;
  const Kernels& (*table)();  // null if this build does not have it
  // What the CPU lacks, space separated; empty if it can run the table.
  std::string (*missing)();
};

std::string NothingMissing() { return {}; }

#if defined(__x86_64__)

// `__builtin_cpu_supports` also asks whether the operating system saves the registers.
std::string MissingForAvx2() {
  std::string missing;
  if (!__builtin_cpu_supports("avx2")) missing += " AVX2";
  if (!__builtin_cpu_supports("fma")) missing += " FMA";
  // Every CPU with AVX2 has F16C; compilers of 2022 cannot ask for it by name.
  return missing;
}

std::string MissingForAvx512() {
  std::string missing = MissingForAvx2();
  if (!__builtin_cpu_supports("avx512f")) missing += " AVX512F";
  if (!__builtin_cpu_supports("avx512bw")) missing += " AVX512BW";
  if (!__builtin_cpu_supports("avx512vl")) missing += " AVX512VL";
  if (!__builtin_cpu_supports("avx512dq")) missing += " AVX512DQ";
  return missing;
}

std::string MissingForAvx2Vnni() {
  std::string missing = MissingForAvx2();
  // Leaf 7, subleaf 1: EAX bit 4. Compilers of 2022 cannot ask for it by name.
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  const bool known = __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0;
  if (!known || (eax >> 4 & 1) == 0) missing += " AVX-VNNI";
  return missing;
}

// The fastest first: "auto" takes the first that runs.
constexpr std::array kCandidates = {
    Candidate{"avx512", avx512::Table, MissingForAvx512},
    Candidate{"avx2-vnni", avx2::VnniTable, MissingForAvx2Vnni},
    Candidate{"avx2", avx2::Table, MissingForAvx2},
    Candidate{"scalar", scalar::Table, NothingMissing},
    Candidate{"neon", nullptr, NothingMissing},
    Candidate{"neon-i8mm", nullptr, NothingMissing},
};

#elif defined(__aarch64__)

std::string MissingForNeon() {
#if defined(__linux__)
  constexpr unsigned long kHwcapDotProduct = 1ul << 20;  // HWCAP_ASIMDDP of the Linux ABI
  if ((getauxval(AT_HWCAP) & kHwcapDotProduct) == 0) return " dotprod";
#endif
  return {};
}

std::string MissingForI8mm() {
  std::string missing = MissingForNeon();
#if defined(__linux__)
  constexpr unsigned long kHwcap2I8mm = 1ul << 13;  // HWCAP2_I8MM
  if ((getauxval(AT_HWCAP2) & kHwcap2I8mm) == 0) missing += " i8mm";
#endif
  return missing;
}

constexpr std::array kCandidates = {
    Candidate{"neon-i8mm", neon::I8mmTable, MissingForI8mm},
    Candidate{"neon", neon::Table, MissingForNeon},
    Candidate{"scalar", scalar::Table, NothingMissing},
    Candidate{"avx2", nullptr, NothingMissing},
    Candidate{"avx2-vnni", nullptr, NothingMissing},
    Candidate{"avx512", nullptr, NothingMissing},
};

#else

constexpr std::array kCandidates = {
    Candidate{"scalar", scalar::Table, NothingMissing},
    Candidate{"avx2", nullptr, NothingMissing},
    Candidate{"avx2-vnni", nullptr, NothingMissing},
    Candidate{"avx512", nullptr, NothingMissing},
    Candidate{"neon", nullptr, NothingMissing},
    Candidate{"neon-i8mm", nullptr, NothingMissing},
};

#endif

}  // namespace

KernelChoice SelectKernels(std::string_view name) {
  std::string known = "auto";
  for (const Candidate& candidate : kCandidates) {
    known.append(", ").append(candidate.name);
    if (name == "auto") {
      if (candidate.table != nullptr && candidate.missing().empty()) {
        return {&candidate.table(), {}};
      }
      continue;
    }
    if (name != candidate.name) continue;
    if (candidate.table == nullptr) {
      return {nullptr, std::string(name) + " kernels are not part of this build"};
    }
    if (const std::string missing = candidate.missing(); !missing.empty()) {
      return {nullptr, std::string(name) + " kernels need what this CPU lacks:" + missing};
    }
    return {&candidate.table(), {}};
  }
  return {nullptr, "unknown kernels '" + std::string(name) + "': use one of " + known};
}

void TopK(const float* scores, int n, int k, int32_t* indices, float* values) {
  // Insertion into a short sorted list. A later score moves ahead only if it is strictly larger, so
  // the lower index stays first among equals.
  int count = 0;
  for (int i = 0; i < n; ++i) {
    // NaN compares false with everything: give it the lowest rank instead.
    const float score =
        scores[i] == scores[i] ? scores[i] : -std::numeric_limits<float>::infinity();
    if (count == k && !(score > values[k - 1])) continue;
    int at = count < k ? count++ : k - 1;
    for (; at > 0 && score > values[at - 1]; --at) {
      values[at] = values[at - 1];
      indices[at] = indices[at - 1];
    }
    values[at] = score;
    indices[at] = i;
  }
}

}  // namespace mference::cpu
