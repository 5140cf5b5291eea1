// Counts heap allocations of the test program, by replacing the global allocation functions.
#pragma once

#include <cstdint>

namespace mference {

// Calls of operator new since the program began, on all threads.
int64_t AllocationCount();

}  // namespace mference
