#include "format/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "format/json_pull.h"

namespace mference {
namespace {

constexpr auto kCode = ErrorCode::kSourceInvalid;
constexpr size_t kMaxNameBytes = 1024;

// The product of a shape and an element size, or nothing on overflow.
std::optional<uint64_t> TensorBytes(const std::vector<uint64_t>& shape, DType dtype) {
  uint64_t bytes = ElementBytes(dtype);
  for (const uint64_t dimension : shape) {
    if (__builtin_mul_overflow(bytes, dimension, &bytes)) return std::nullopt;
  }
  return bytes;
}

SafetensorsTensor ReadTensor(JsonPull& json, std::string_view name, uint64_t data_offset,
                             uint64_t file_bytes) {
  SafetensorsTensor tensor;
  tensor.name = name;
  bool has_dtype = false;
  bool has_shape = false;
  std::vector<uint64_t> range;
  json.Object([&](std::string_view key) {
    if (key == "dtype") {
      const std::string text = json.String(16);
      const auto dtype = ParseDType(text);
      if (!dtype) {
        json.FailHere(
            fmt::format("dtype '{}' is not supported (U32, BF16, F16, F32, I64, I32 are)", text));
      }
      tensor.dtype = *dtype;
      has_dtype = true;
    } else if (key == "shape") {
      tensor.shape.clear();
      json.Array([&](size_t index) {
        if (index >= kMaxTensorRank) {
          json.FailHere(fmt::format("more than {} dimensions", kMaxTensorRank));
        }
        tensor.shape.push_back(json.Uint());
      });
      has_shape = true;
    } else if (key == "data_offsets") {
      range.clear();
      json.Array([&](size_t index) {
        if (index >= 2) json.FailHere("expected two offsets");
        range.push_back(json.Uint());
      });
    } else {
      json.Skip();
    }
  });
  if (!has_dtype || !has_shape || range.size() != 2) {
    json.FailHere("a tensor without dtype, shape or two data_offsets");
  }
  const uint64_t data_bytes = file_bytes - data_offset;
  if (range[0] > range[1] || range[1] > data_bytes) {
    json.FailHere(fmt::format("data_offsets [{}, {}] lie outside the {} data bytes of the file",
                              range[0], range[1], data_bytes));
  }
  tensor.offset = data_offset + range[0];
  tensor.bytes = range[1] - range[0];
  const auto expected = TensorBytes(tensor.shape, tensor.dtype);
  if (expected != tensor.bytes) {
    json.FailHere(fmt::format("shape [{}] of {} needs {} bytes, data_offsets give {}",
                              fmt::join(tensor.shape, ", "), DTypeName(tensor.dtype),
                              expected ? fmt::to_string(*expected) : "more than 2^64",
                              tensor.bytes));
  }
  return tensor;
}

void CheckNoOverlap(const std::vector<SafetensorsTensor>& sorted, const std::string& name) {
  const SafetensorsTensor* previous = nullptr;
  for (const SafetensorsTensor& tensor : sorted) {
    if (tensor.bytes == 0) continue;
    if (previous != nullptr && tensor.offset < previous->offset + previous->bytes) {
      Fail(kCode, "{}: tensors '{}' and '{}' overlap at offset {}", name, previous->name,
           tensor.name, tensor.offset);
    }
    previous = &tensor;
  }
}

}  // namespace

uint64_t SafetensorsHeader::ParseLength(std::span<const std::byte, kSafetensorsPrefixBytes> prefix,
                                        uint64_t file_bytes, const std::string& name) {
  uint64_t length = 0;
  for (size_t i = 0; i < prefix.size(); ++i) length |= uint64_t(prefix[i]) << (8 * i);
  if (file_bytes < kSafetensorsPrefixBytes || length > file_bytes - kSafetensorsPrefixBytes) {
    Fail(kCode, "{}: a header of {} bytes does not fit in the file's {}", name, length, file_bytes);
  }
  if (length > kMaxSafetensorsHeaderBytes) {
    Fail(kCode, "{}: the header has {} bytes, more than the {} allowed", name, length,
         kMaxSafetensorsHeaderBytes);
  }
  return length;
}

SafetensorsHeader SafetensorsHeader::Parse(std::string_view text, uint64_t file_bytes,
                                           const std::string& name) {
  const uint64_t data_offset = kSafetensorsPrefixBytes + text.size();
  if (text.size() > kMaxSafetensorsHeaderBytes || data_offset > file_bytes) {
    Fail(kCode, "{}: a header of {} bytes does not fit in the file's {}", name, text.size(),
         file_bytes);
  }
  SafetensorsHeader header;
  JsonPull json(text, name + " (header)", kCode);
  json.Object([&](std::string_view key) {
    if (key == "__metadata__") {
      json.Object([&](std::string_view metadata_key) {
        const std::string owned_key(metadata_key);
        header.metadata_[owned_key] = json.String(kMaxSafetensorsHeaderBytes);
      });
      return;
    }
    if (key.empty() || key.size() > kMaxNameBytes) {
      json.FailHere(fmt::format("a tensor name of {} bytes", key.size()));
    }
    const std::string tensor_name(key);
    header.tensors_.push_back(ReadTensor(json, tensor_name, data_offset, file_bytes));
  });
  json.End();
  std::stable_sort(header.tensors_.begin(), header.tensors_.end(),
                   [](const auto& a, const auto& b) { return a.offset < b.offset; });
  for (size_t i = 0; i < header.tensors_.size(); ++i) {
    if (!header.by_name_.emplace(header.tensors_[i].name, i).second) {
      Fail(kCode, "{}: tensor '{}' is described twice", name, header.tensors_[i].name);
    }
  }
  CheckNoOverlap(header.tensors_, name);
  return header;
}

const SafetensorsTensor* SafetensorsHeader::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path), file_(OpenForReading(path)), file_bytes_(FileSize(file_, path.string())) {
  const std::string name = path.string();
  if (file_bytes_ < kSafetensorsPrefixBytes) {
    Fail(kCode, "{}: {} bytes are too few for a safetensors file", name, file_bytes_);
  }
  std::array<std::byte, kSafetensorsPrefixBytes> prefix;
  ReadExactly(file_, 0, prefix, name);
  std::string text(SafetensorsHeader::ParseLength(prefix, file_bytes_, name), '\0');
  ReadExactly(file_, kSafetensorsPrefixBytes, std::as_writable_bytes(std::span(text)), name);
  header_ = SafetensorsHeader::Parse(text, file_bytes_, name);
  mapping_ = MappedFile(file_, name);
}

const SafetensorsTensor& SafetensorsFile::Tensor(std::string_view name) const {
  const SafetensorsTensor* tensor = header_.Find(name);
  if (tensor == nullptr) {
    Fail(ErrorCode::kTensorNotFound, "{} holds no tensor '{}'", path_.string(), name);
  }
  return *tensor;
}

std::span<const std::byte> SafetensorsFile::Bytes(const SafetensorsTensor& tensor) const {
  return mapping_.bytes().subspan(tensor.offset, tensor.bytes);
}

}  // namespace mference
