// Making sure that memory which is there stays there.
#pragma once

#include <cstddef>
#include <span>

namespace mference {

// Brings all pages of a read-only mapping into memory, reading what is not there, and locks them
// until they are unmapped where the limit on locked memory (often 8 MiB) allows it. Blocks for as
// long as that takes; thread-safe.
void KeepPages(std::span<const std::byte> mapping);

// The reverse, for pages that lie wholly in a part of a read-only mapping of a file: unlocks them
// and takes them out of this process. Whoever reads there gets them from the file again.
void ReleasePages(std::span<const std::byte> mapping);

// Brings pages of anonymous memory into being without changing what they hold, so that it may be
// written to meanwhile, also by devices. False where the kernel (before Linux 5.14) cannot.
bool PopulatePages(std::span<std::byte> memory);

}  // namespace mference
