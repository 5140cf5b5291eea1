// Counts heap allocations of the test program, by replacing the global allocation functions.
#pragma once

#include <cstdint>

namespace mference {

// False under the sanitizers, whose run-time libraries own the allocation functions.
bool CountsAllocations();

// Calls of operator new since the program began, on all threads.
int64_t AllocationCount();

}  // namespace mference
