// The binary index at the head of `model_weights.bin`: name, type, shape and ranges of each
// resident tensor.
//
//   0                u64 index_bytes, u64 resident_bytes, u64 entry_count
//   24               entry_count x 72-byte entries
//   24 + 72 * n      names, concatenated
//   ...              zeros up to index_bytes, a multiple of 16,384
//   index_bytes      payload, packed without padding, resident_bytes long
//
// Everything is packed with no alignment: a range may start at an odd multiple of two. Host code
// loads with memcpy.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "format/dtype.h"

namespace mference {

constexpr uint64_t kMaxResidentIndexBytes = uint64_t{16} << 20;

// A byte range of a file. {0, 0}: there is none.
struct FileRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;

  bool operator==(const FileRange&) const = default;
};

struct ResidentTensor {
  std::string name;
  DType dtype = DType::kBf16;
  std::array<uint32_t, 4> shape{};  // logical; zero-padded on the right
  FileRange weight;
  FileRange scales;  // quantised tensors only
  FileRange biases;

  int rank() const;
  uint64_t element_count() const;  // of the logical shape
};

struct ResidentIndex {
  uint64_t index_bytes = 0;
  uint64_t resident_bytes = 0;
  std::vector<ResidentTensor> tensors;  // in file order

  // nullptr when there is none of that name. Binary search over `by_name`.
  const ResidentTensor* Find(std::string_view name) const;

  std::vector<uint32_t> by_name;  // positions in `tensors`, sorted by name
};

// Reads header and index, and checks every rule. Throws kIndexCorrupt with entry and rule. That the
// file ends where the payload ends is CheckResidentFileSize's question.
ResidentIndex ReadResidentIndex(const FileDescriptor& file, const std::string& name);
ResidentIndex ParseResidentIndex(std::span<const std::byte> index_region, const std::string& name);
void CheckResidentFileSize(const ResidentIndex& index, uint64_t file_bytes,
                           const std::string& name);

// For writers: takes name, dtype, shape and the three `bytes` of each tensor, in file order, and
// assigns the offsets. Throws kInvalidArgument for what the format cannot hold.
ResidentIndex PlanResidentIndex(std::vector<ResidentTensor> tensors);
// The `index_bytes` long region, padding included.
std::vector<std::byte> SerializeResidentIndex(const ResidentIndex& index);

// What an affine matrix turns out to be from its sizes.
struct AffineEncoding {
  int bits = 0;
  uint64_t group_size = 0;

  bool operator==(const AffineEncoding&) const = default;
};

// Throws kTensorSizeMismatch unless `tensor` is unquantised, of that type, shape and size.
void RequirePlain(const ResidentTensor& tensor, DType dtype, std::span<const uint32_t> shape);
// Throws kTensorSizeMismatch unless `tensor` is a packed affine tensor of that logical shape whose
// sizes agree with some whole number of bits (2, 4 or 8) and some group size; returns them. The
// last dimension is the columns.
AffineEncoding RequireAffine(const ResidentTensor& tensor, std::span<const uint32_t> shape);
// The same for one encoding.
void RequireAffine(const ResidentTensor& tensor, std::span<const uint32_t> shape,
                   const AffineEncoding& expected);

}  // namespace mference
