#include "format/resident_index.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "base/utf8.h"
#include "format/manifest.h"

namespace mference {
namespace {

constexpr uint64_t kHeaderBytes = 24;
constexpr uint64_t kEntryBytes = 72;

template <typename Integer>
Integer Load(std::span<const std::byte> bytes, uint64_t offset) {
  Integer value = 0;
  for (size_t i = 0; i < sizeof(Integer); ++i) {
    value = static_cast<Integer>(value | Integer(uint64_t(bytes[offset + i]) << (8 * i)));
  }
  return value;
}

template <typename Integer>
void Store(std::span<std::byte> bytes, uint64_t offset, Integer value) {
  for (size_t i = 0; i < sizeof(Integer); ++i) {
    bytes[offset + i] = static_cast<std::byte>((uint64_t(value) >> (8 * i)) & 0xFF);
  }
}

FileRange LoadRange(std::span<const std::byte> bytes, uint64_t offset) {
  return {Load<uint64_t>(bytes, offset), Load<uint64_t>(bytes, offset + 8)};
}

void StoreRange(std::span<std::byte> bytes, uint64_t offset, const FileRange& range) {
  Store<uint64_t>(bytes, offset, range.offset);
  Store<uint64_t>(bytes, offset + 8, range.bytes);
}

// Checks the three counts of the header against the sizes that bound them.
ResidentIndex ParseHeader(std::span<const std::byte> header, const std::string& name,
                          uint64_t& entry_count) {
  const auto require = [&](bool holds, std::string_view rule) {
    if (!holds) Fail(ErrorCode::kIndexCorrupt, "{}: {}", name, rule);
  };
  require(header.size() >= kHeaderBytes, "too short for a resident index");
  ResidentIndex index;
  index.index_bytes = Load<uint64_t>(header, 0);
  index.resident_bytes = Load<uint64_t>(header, 8);
  entry_count = Load<uint64_t>(header, 16);
  require(index.index_bytes >= kHeaderBytes && index.index_bytes <= kMaxResidentIndexBytes &&
              index.index_bytes % kGturboPageBytes == 0,
          fmt::format("index size {} is not a multiple of 16384 up to {}", index.index_bytes,
                      kMaxResidentIndexBytes));
  require(
      entry_count <= (index.index_bytes - kHeaderBytes) / kEntryBytes,
      fmt::format("{} entries do not fit in an index of {} bytes", entry_count, index.index_bytes));
  require(index.resident_bytes <= std::numeric_limits<uint64_t>::max() - index.index_bytes,
          "the resident size overflows");
  return index;
}

std::string ReadName(std::span<const std::byte> region, uint64_t entry, uint64_t names_begin,
                     const auto& require) {
  const uint64_t offset = Load<uint32_t>(region, entry);
  const uint64_t length = Load<uint16_t>(region, entry + 4);
  require(length > 0 && offset >= names_begin && offset + length <= region.size(),
          "a name that is empty or lies outside the string table");
  std::string text;
  for (const std::byte byte : region.subspan(offset, length)) text += static_cast<char>(byte);
  require(IsValidUtf8(text), "a name that is not UTF-8");
  return text;
}

void CheckShape(const std::array<uint32_t, 4>& shape, const auto& require) {
  require(shape[0] > 0, "a first dimension of zero");
  uint64_t elements = 1;
  bool ended = false;
  for (const uint32_t dimension : shape) {
    require(!ended || dimension == 0, "a dimension after a zero dimension");
    ended = dimension == 0;
    if (ended) continue;
    require(!__builtin_mul_overflow(elements, uint64_t{dimension}, &elements) &&
                elements <= uint64_t{1} << 56,
            "a shape of more elements than any file holds");
  }
}

void CheckRange(const FileRange& range, const ResidentIndex& index, const char* what,
                const auto& require) {
  const uint64_t end = index.index_bytes + index.resident_bytes;
  require(
      range.offset >= index.index_bytes && range.offset <= end && range.bytes <= end - range.offset,
      fmt::format("{} at offset {} with {} bytes lie outside the payload [{}, {})", what,
                  range.offset, range.bytes, index.index_bytes, end));
}

ResidentTensor ParseEntry(std::span<const std::byte> region, uint64_t number,
                          const ResidentIndex& index, uint64_t names_begin,
                          const std::string& file_name) {
  const uint64_t entry = kHeaderBytes + number * kEntryBytes;
  ResidentTensor tensor;
  const auto require = [&](bool holds, std::string_view rule) {
    if (holds) return;
    Fail(ErrorCode::kIndexCorrupt, "{}: entry {}{}: {}", file_name, number,
         tensor.name.empty() ? "" : " ('" + tensor.name + "')", rule);
  };
  tensor.name = ReadName(region, entry, names_begin, require);
  const auto dtype = Load<uint8_t>(region, entry + 6);
  require(dtype < kDTypeCount, fmt::format("an unknown dtype {}", dtype));
  tensor.dtype = static_cast<DType>(dtype);
  require(Load<uint8_t>(region, entry + 7) == 0, "a reserved byte that is not zero");
  tensor.weight = LoadRange(region, entry + 8);
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    tensor.shape[i] = Load<uint32_t>(region, entry + 24 + 4 * i);
  }
  tensor.scales = LoadRange(region, entry + 40);
  tensor.biases = LoadRange(region, entry + 56);
  CheckShape(tensor.shape, require);
  require(tensor.weight.bytes > 0, "no weight bytes");
  CheckRange(tensor.weight, index, "weights", require);
  for (const auto& [range, what] :
       {std::pair(&tensor.scales, "scales"), std::pair(&tensor.biases, "biases")}) {
    if (range->bytes == 0) {
      require(range->offset == 0, fmt::format("{} of no bytes with an offset", what));
    } else {
      CheckRange(*range, index, what, require);
    }
  }
  return tensor;
}

void SortNames(ResidentIndex& index) {
  index.by_name.resize(index.tensors.size());
  std::iota(index.by_name.begin(), index.by_name.end(), 0U);
  std::sort(index.by_name.begin(), index.by_name.end(),
            [&](uint32_t a, uint32_t b) { return index.tensors[a].name < index.tensors[b].name; });
}

// The name that two tensors share, or nullptr.
const std::string* RepeatedName(const ResidentIndex& index) {
  for (size_t i = 1; i < index.by_name.size(); ++i) {
    const std::string& name = index.tensors[index.by_name[i]].name;
    if (name == index.tensors[index.by_name[i - 1]].name) return &name;
  }
  return nullptr;
}

void CheckNoOverlap(const ResidentIndex& index, const std::string& name) {
  std::vector<std::pair<FileRange, const ResidentTensor*>> ranges;
  for (const ResidentTensor& tensor : index.tensors) {
    for (const FileRange& range : {tensor.weight, tensor.scales, tensor.biases}) {
      if (range.bytes > 0) ranges.emplace_back(range, &tensor);
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const auto& a, const auto& b) { return a.first.offset < b.first.offset; });
  for (size_t i = 1; i < ranges.size(); ++i) {
    const auto& [before, before_tensor] = ranges[i - 1];
    const auto& [range, tensor] = ranges[i];
    if (before.offset + before.bytes > range.offset) {
      Fail(ErrorCode::kIndexCorrupt, "{}: '{}' and '{}' overlap at offset {}", name,
           before_tensor->name, tensor->name, range.offset);
    }
  }
}

}  // namespace

int ResidentTensor::rank() const {
  return static_cast<int>(
      std::count_if(shape.begin(), shape.end(), [](uint32_t dimension) { return dimension > 0; }));
}

uint64_t ResidentTensor::element_count() const {
  uint64_t count = 1;
  for (const uint32_t dimension : shape) count *= dimension > 0 ? dimension : 1;
  return count;
}

const ResidentTensor* ResidentIndex::Find(std::string_view name) const {
  const auto found = std::lower_bound(
      by_name.begin(), by_name.end(), name,
      [this](uint32_t position, std::string_view key) { return tensors[position].name < key; });
  if (found == by_name.end() || tensors[*found].name != name) return nullptr;
  return &tensors[*found];
}

ResidentIndex ParseResidentIndex(std::span<const std::byte> region, const std::string& name) {
  uint64_t entry_count = 0;
  ResidentIndex index = ParseHeader(region, name, entry_count);
  if (region.size() < index.index_bytes) {
    Fail(ErrorCode::kIndexCorrupt, "{}: {} bytes end inside an index of {}", name, region.size(),
         index.index_bytes);
  }
  region = region.first(index.index_bytes);
  const uint64_t names_begin = kHeaderBytes + entry_count * kEntryBytes;
  index.tensors.reserve(entry_count);
  for (uint64_t number = 0; number < entry_count; ++number) {
    index.tensors.push_back(ParseEntry(region, number, index, names_begin, name));
  }
  SortNames(index);
  if (const std::string* repeated = RepeatedName(index)) {
    Fail(ErrorCode::kIndexCorrupt, "{}: the name '{}' is used twice", name, *repeated);
  }
  CheckNoOverlap(index, name);
  return index;
}

ResidentIndex ReadResidentIndex(const FileDescriptor& file, const std::string& name) {
  const uint64_t file_bytes = FileSize(file, name);
  std::array<std::byte, kHeaderBytes> header;
  if (file_bytes < kHeaderBytes) {
    Fail(ErrorCode::kIndexCorrupt, "{}: {} bytes are too few for a resident index", name,
         file_bytes);
  }
  ReadExactly(file, 0, header, name);
  uint64_t entry_count = 0;
  const uint64_t index_bytes = ParseHeader(header, name, entry_count).index_bytes;
  if (file_bytes < index_bytes) {
    Fail(ErrorCode::kIndexCorrupt, "{}: {} bytes end inside an index of {}", name, file_bytes,
         index_bytes);
  }
  std::vector<std::byte> region(index_bytes);
  ReadExactly(file, 0, region, name);
  return ParseResidentIndex(region, name);
}

void CheckResidentFileSize(const ResidentIndex& index, uint64_t file_bytes,
                           const std::string& name) {
  if (file_bytes == index.index_bytes + index.resident_bytes) return;
  Fail(ErrorCode::kIndexCorrupt, "{} has {} bytes, but its index of {} and payload of {} make {}",
       name, file_bytes, index.index_bytes, index.resident_bytes,
       index.index_bytes + index.resident_bytes);
}

ResidentIndex PlanResidentIndex(std::vector<ResidentTensor> tensors) {
  ResidentIndex index;
  index.tensors = std::move(tensors);
  uint64_t head_bytes = kHeaderBytes + index.tensors.size() * kEntryBytes;
  for (const ResidentTensor& tensor : index.tensors) {
    const auto require = [&](bool holds, std::string_view rule) {
      if (!holds) Fail(ErrorCode::kInvalidArgument, "resident tensor '{}': {}", tensor.name, rule);
    };
    require(!tensor.name.empty() && tensor.name.size() <= UINT16_MAX && IsValidUtf8(tensor.name),
            "a name must be UTF-8 of 1 to 65535 bytes");
    CheckShape(tensor.shape, require);
    require(tensor.weight.bytes > 0, "no weight bytes");
    head_bytes += tensor.name.size();
  }
  index.index_bytes = RoundUp(head_bytes, kGturboPageBytes);
  if (index.index_bytes > kMaxResidentIndexBytes) {
    Fail(ErrorCode::kInvalidArgument, "a resident index of {} bytes, more than the {} allowed",
         index.index_bytes, kMaxResidentIndexBytes);
  }
  uint64_t end = index.index_bytes;
  for (ResidentTensor& tensor : index.tensors) {
    for (FileRange* range : {&tensor.weight, &tensor.scales, &tensor.biases}) {
      range->offset = range->bytes > 0 ? end : 0;
      if (__builtin_add_overflow(end, range->bytes, &end)) {
        Fail(ErrorCode::kInvalidArgument, "resident tensor '{}' ends beyond 2^64 bytes",
             tensor.name);
      }
    }
  }
  index.resident_bytes = end - index.index_bytes;
  SortNames(index);
  if (const std::string* repeated = RepeatedName(index)) {
    Fail(ErrorCode::kInvalidArgument, "resident tensor '{}' is listed twice", *repeated);
  }
  return index;
}

std::vector<std::byte> SerializeResidentIndex(const ResidentIndex& index) {
  std::vector<std::byte> region(index.index_bytes);
  const std::span<std::byte> bytes(region);
  Store<uint64_t>(bytes, 0, index.index_bytes);
  Store<uint64_t>(bytes, 8, index.resident_bytes);
  Store<uint64_t>(bytes, 16, index.tensors.size());
  uint64_t entry = kHeaderBytes;
  uint64_t name_offset = kHeaderBytes + index.tensors.size() * kEntryBytes;
  for (const ResidentTensor& tensor : index.tensors) {
    Store<uint32_t>(bytes, entry, static_cast<uint32_t>(name_offset));
    Store<uint16_t>(bytes, entry + 4, static_cast<uint16_t>(tensor.name.size()));
    Store<uint8_t>(bytes, entry + 6, static_cast<uint8_t>(tensor.dtype));
    StoreRange(bytes, entry + 8, tensor.weight);
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      Store<uint32_t>(bytes, entry + 24 + 4 * i, tensor.shape[i]);
    }
    StoreRange(bytes, entry + 40, tensor.scales);
    StoreRange(bytes, entry + 56, tensor.biases);
    const auto name = std::as_bytes(std::span(tensor.name));
    std::copy(name.begin(), name.end(), region.begin() + static_cast<ptrdiff_t>(name_offset));
    name_offset += tensor.name.size();
    entry += kEntryBytes;
  }
  return region;
}

}  // namespace mference
