// Writing safetensors larger than memory: shapes first, then rows as they are produced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "format/dtype.h"

namespace mference {

struct SafetensorsSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;  // outermost first
};

// Declares every tensor up front, so that the header is final before the first row arrives; then
// takes each tensor's bytes front to back in chunks of any size, the tensors in any order. Holds no
// data. The file appears under its name only when `Finish` has synced it; a writer that is
// destroyed earlier leaves nothing behind. Not thread-safe.
class SafetensorsWriter {
 public:
  // Throws kInvalidArgument for an empty or repeated name, or sizes beyond 64 bits.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<SafetensorsSpec>& tensors,
                    const std::map<std::string, std::string>& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Appends little-endian elements to the tensor at `index` of the declared list. Throws
  // kInvalidArgument when they would exceed its size, kDiskFull or kIo.
  void Append(size_t index, std::span<const std::byte> bytes);
  // Throws kInvalidArgument naming the first tensor that is not complete.
  void Finish();

 private:
  struct Region {
    std::string name;
    uint64_t next = 0;  // absolute file offset of the next byte
    uint64_t end = 0;
  };

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  FileDescriptor file_;
  std::vector<Region> regions_;
  bool finished_ = false;
};

}  // namespace mference
