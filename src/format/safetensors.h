// Reading safetensors: where each tensor lies in the file, never the tensors themselves.
//
// A safetensors file is a u64 (little-endian) header length, a JSON header and the data. Headers
// come from strangers, so they are bounded before they are parsed and every rule is checked: sizes
// follow from shapes, ranges lie inside the file, none overlap. The header can come from a local
// file or from bytes that were fetched over a network. Violations throw kSourceInvalid.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "format/dtype.h"

namespace mference {

constexpr uint64_t kSafetensorsPrefixBytes = 8;
constexpr uint64_t kMaxSafetensorsHeaderBytes = uint64_t{16} << 20;
constexpr size_t kMaxTensorRank = 8;

struct SafetensorsTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;  // outermost first; empty for a scalar
  uint64_t offset = 0;          // absolute, in the file
  uint64_t bytes = 0;
};

// The checked header of one file. Immutable.
class SafetensorsHeader {
 public:
  // The header's length in bytes from the first 8 bytes of a file of `file_bytes`. `name` is for
  // messages, here and below.
  static uint64_t ParseLength(std::span<const std::byte, kSafetensorsPrefixBytes> prefix,
                              uint64_t file_bytes, const std::string& name);
  // `json` is exactly the header's text, i.e. bytes [8, 8 + length) of the file.
  static SafetensorsHeader Parse(std::string_view json, uint64_t file_bytes,
                                 const std::string& name);

  // In the order of the file's data.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  // nullptr when there is none of that name.
  const SafetensorsTensor* Find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
  std::map<std::string, std::string> metadata_;
};

// A local file: its header and, for callers that want the data, a read-only mapping.
// Thread-safe once constructed.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  uint64_t file_bytes() const { return file_bytes_; }
  const FileDescriptor& file() const { return file_; }
  const SafetensorsHeader& header() const { return header_; }

  // Throws kTensorNotFound.
  const SafetensorsTensor& Tensor(std::string_view name) const;
  // The tensor's bytes in the mapping: little-endian, aligned to whatever the file gives.
  std::span<const std::byte> Bytes(const SafetensorsTensor& tensor) const;

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  uint64_t file_bytes_ = 0;
  SafetensorsHeader header_;
  MappedFile mapping_;
};

}  // namespace mference
