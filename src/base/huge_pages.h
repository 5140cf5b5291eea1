// Moving what a mapping of a file holds onto huge pages.
#pragma once

#include <cstddef>
#include <span>

#include "base/function_ref.h"

namespace mference {

// Gives a read-only mapping pages of its own, huge where the kernel has them, at the same
// addresses: every byte stays what it is, and other threads may read it all the while. The file's
// own pages are often 4 KiB each, and finding so many of them costs a product that only streams
// weights a tenth of the memory's bandwidth.
//
// Goes through the mapping piece by piece, so that hardly more memory is taken at any time than the
// mapping has. `after_piece` is told which bytes of the mapping no longer use the file's pages, and
// stops the move by returning false. What cannot be moved stays as it is: the parts before the
// first and after the last boundary of a huge page, and everything where the kernel refuses.
//
// Thread-safe for different mappings. Returns the number of bytes moved.
size_t MoveToHugePages(std::span<const std::byte> mapping,
                       FunctionRef<bool(size_t offset, size_t bytes)> after_piece);

}  // namespace mference
