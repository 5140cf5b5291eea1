#include "format/safetensors_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "base/error.h"
#include "format/json_writer.h"
#include "format/safetensors.h"

namespace mference {
namespace {

// The header's text with the data offsets of each tensor, padded with spaces so that the data
// starts at a multiple of 8.
std::string HeaderText(const std::vector<SafetensorsSpec>& tensors,
                       const std::map<std::string, std::string>& metadata,
                       std::vector<uint64_t>& ends) {
  std::string text;
  JsonWriter json([&text](std::string_view piece) { text += piece; }, JsonWriter::Style::kCompact);
  std::set<std::string_view> names;
  uint64_t end = 0;
  json.BeginObject();
  if (!metadata.empty()) {
    json.Key("__metadata__");
    json.BeginObject();
    for (const auto& [key, value] : metadata) {
      json.Key(key);
      json.String(value);
    }
    json.EndObject();
  }
  for (const SafetensorsSpec& tensor : tensors) {
    if (tensor.name.empty() || tensor.name == "__metadata__" || !names.insert(tensor.name).second) {
      Fail(ErrorCode::kInvalidArgument, "'{}' cannot name a tensor (again)", tensor.name);
    }
    uint64_t bytes = ElementBytes(tensor.dtype);
    bool overflows = tensor.shape.size() > kMaxTensorRank;
    for (const uint64_t dimension : tensor.shape) {
      overflows = overflows || __builtin_mul_overflow(bytes, dimension, &bytes);
    }
    const uint64_t begin = end;
    if (overflows || __builtin_add_overflow(begin, bytes, &end)) {
      Fail(ErrorCode::kInvalidArgument, "tensor '{}' [{}] is too large", tensor.name,
           fmt::join(tensor.shape, ", "));
    }
    ends.push_back(end);
    json.Key(tensor.name);
    json.BeginObject();
    json.Key("dtype");
    json.String(DTypeName(tensor.dtype));
    json.Key("shape");
    json.BeginArray();
    for (const uint64_t dimension : tensor.shape) json.Uint(dimension);
    json.EndArray();
    json.Key("data_offsets");
    json.BeginArray();
    json.Uint(begin);
    json.Uint(end);
    json.EndArray();
    json.EndObject();
  }
  json.EndObject();
  json.Finish();
  text.back() = ' ';  // the writer's final newline; readers expect spaces
  while (text.size() % 8 != 0) text += ' ';
  return text;
}

// A name beside `path` that no other process uses at this time.
std::filesystem::path TemporaryBeside(const std::filesystem::path& path) {
  return fmt::format("{}.{}.tmp", path.string(), getpid());
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     const std::vector<SafetensorsSpec>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(OutputDestination(path)), temporary_(TemporaryBeside(path_)) {
  std::vector<uint64_t> ends;
  std::string text = HeaderText(tensors, metadata, ends);
  const uint64_t data_offset = kSafetensorsPrefixBytes + text.size();
  uint64_t begin = data_offset;
  for (size_t i = 0; i < tensors.size(); ++i) {
    uint64_t end = 0;
    if (__builtin_add_overflow(data_offset, ends[i], &end)) {
      Fail(ErrorCode::kInvalidArgument, "tensor '{}' ends beyond 2^64 bytes", tensors[i].name);
    }
    regions_.push_back({tensors[i].name, begin, end});
    begin = end;
  }
  std::string prefix;
  for (int shift = 0; shift < 64; shift += 8) {
    prefix += static_cast<char>((text.size() >> shift) & 0xFF);
  }
  text.insert(0, prefix);

  file_ = FileDescriptor(
      open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file_.valid()) FailErrno(fmt::format("cannot create {}", temporary_.string()), errno);
  try {
    WriteExactly(file_, 0, std::as_bytes(std::span(text)), temporary_.string());
  } catch (...) {
    static_cast<void>(unlink(temporary_.c_str()));
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!finished_) static_cast<void>(unlink(temporary_.c_str()));
}

void SafetensorsWriter::Append(size_t index, std::span<const std::byte> bytes) {
  if (index >= regions_.size()) {
    Fail(ErrorCode::kInvalidArgument, "{}: there is no tensor {} of {}", path_.string(), index,
         regions_.size());
  }
  Region& region = regions_[index];
  if (bytes.size() > region.end - region.next) {
    Fail(ErrorCode::kInvalidArgument, "{}: {} bytes exceed the {} that tensor '{}' still takes",
         path_.string(), bytes.size(), region.end - region.next, region.name);
  }
  WriteExactly(file_, region.next, bytes, temporary_.string());
  region.next += bytes.size();
}

void SafetensorsWriter::Finish() {
  for (const Region& region : regions_) {
    if (region.next != region.end) {
      Fail(ErrorCode::kInvalidArgument, "{}: tensor '{}' still lacks {} bytes", path_.string(),
           region.name, region.end - region.next);
    }
  }
  SyncFile(file_, temporary_.string());
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    FailErrno(fmt::format("cannot rename {} to {}", temporary_.string(), path_.string()), errno);
  }
  finished_ = true;
  const std::filesystem::path parent = path_.parent_path();
  SyncDirectory(parent.empty() ? std::filesystem::path(".") : parent);
}

}  // namespace mference
