#include "format/hash_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>

#include "base/sha256.h"

namespace mference {

std::string HashFile(const FileDescriptor& file, uint64_t bytes, const std::string& name,
                     const HashOptions& options) {
  // How far behind the cursor pages are dropped: far enough not to undo the kernel's read-ahead.
  constexpr uint64_t kDropLagBytes = uint64_t{8} << 20;
  const auto buffer_bytes = static_cast<size_t>(std::min<uint64_t>(bytes, kHashBufferBytes));
  const auto buffer = std::make_unique<std::byte[]>(std::max<size_t>(buffer_bytes, 1));
  Sha256 digest;
  uint64_t dropped = 0;
  for (uint64_t offset = 0; offset < bytes;) {
    const auto size = static_cast<size_t>(std::min<uint64_t>(bytes - offset, kHashBufferBytes));
    const std::span<std::byte> tile(buffer.get(), size);
    ReadExactly(file, offset, tile, name);
    digest.Update(tile);
    offset += size;
    if (options.drop_page_cache && (offset == bytes || offset >= dropped + 2 * kDropLagBytes)) {
      const uint64_t end = offset == bytes ? bytes : offset - kDropLagBytes;
      if (end > dropped) DropPageCache(file, dropped, end - dropped);
      dropped = end;
    }
    if (options.on_progress) options.on_progress(size);
  }
  return digest.FinishHex();
}

}  // namespace mference
