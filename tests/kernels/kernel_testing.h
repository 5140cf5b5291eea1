// What the kernel tests share: the tables this machine runs, buffers that fault when a kernel reads
// past their end, and comparisons that show what differs.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/kernels.h"

namespace mference::cpu {

// FP32 rounds a result by at most this factor.
constexpr double kUnitRoundoff = 0x1p-24;

// Every table that this CPU runs, each forced by name.
inline std::vector<const Kernels*> RunnableKernels() {
  std::vector<const Kernels*> tables;
  for (const char* name : {"scalar", "avx2", "avx2-vnni", "avx512", "neon", "neon-i8mm"}) {
    if (const KernelChoice choice = SelectKernels(name); choice.kernels != nullptr) {
      tables.push_back(choice.kernels);
    }
  }
  return tables;
}

// A test that runs once per table, as `k()`.
class KernelTest : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& k() const { return *GetParam(); }
  bool IsScalar() const { return std::string(k().name) == "scalar"; }

  float Uniform(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random_);
  }
  int UniformInt(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random_);
  }
  std::vector<float> UniformVector(int n, float low, float high) {
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = Uniform(low, high);
    return values;
  }

 private:
  std::mt19937 random_{20240607};
};

inline std::string KernelsName(const ::testing::TestParamInfo<const Kernels*>& info) {
  std::string name = info.param->name;
  std::erase(name, '-');  // test names have none
  return name;
}

// A buffer whose last byte is the last before an unmapped page: reading or writing past the end
// faults. The start has only the alignment that the size leaves.
template <typename T>
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t count) : count_(count) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = (count * sizeof(T) + page - 1) / page * page;
    mapped_bytes_ = bytes + page;
    void* at =
        mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) std::abort();
    mapped_ = static_cast<std::byte*>(at);
    if (mprotect(mapped_ + bytes, page, PROT_NONE) != 0) std::abort();
    data_ = static_cast<T*>(static_cast<void*>(mapped_ + bytes - count * sizeof(T)));
  }
  explicit GuardedBuffer(const std::vector<T>& values) : GuardedBuffer(values.size()) {
    if (!values.empty()) std::memcpy(data_, values.data(), values.size() * sizeof(T));
  }
  ~GuardedBuffer() { munmap(mapped_, mapped_bytes_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return count_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }

 private:
  size_t count_;
  size_t mapped_bytes_ = 0;
  std::byte* mapped_ = nullptr;
  T* data_ = nullptr;
};

// Every got[i] is within bound(i) of expected[i]; shows the first elements that are not.
inline void ExpectWithin(std::span<const double> expected, std::span<const float> got,
                         const std::function<double(size_t)>& bound, const std::string& what) {
  ASSERT_EQ(expected.size(), got.size()) << what;
  int bad = 0;
  std::string shown;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference = static_cast<double>(got[i]) - expected[i];
    if (std::abs(difference) <= bound(i)) continue;
    if (bad++ < 8) {
      char line[160];
      std::snprintf(line, sizeof line,
                    "\n  [%zu] expected %.9g got %.9g difference %.3g bound %.3g", i, expected[i],
                    static_cast<double>(got[i]), difference, bound(i));
      shown += line;
    }
  }
  EXPECT_EQ(bad, 0) << what << ": " << bad << " of " << expected.size() << " differ" << shown;
}

}  // namespace mference::cpu
