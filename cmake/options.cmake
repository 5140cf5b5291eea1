# Build-wide switches: language level, warnings, sanitizers. One place, applied through the
# `mference_flags` interface target so that nothing leaks into consumers.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Kernels choose their own level (src/backend/CMakeLists.txt); elsewhere -O3 only costs build time.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

option(MFERENCE_BUILD_TESTS "Build the test programs" ON)
option(MFERENCE_BUILD_BENCHMARKS "Build the micro-benchmarks" OFF)
option(MFERENCE_BUILD_FUZZERS "Build the fuzz targets (Clang)" OFF)
option(MFERENCE_COUNT_WORK "Count allocations and mutexes; `mference bench` shows them" OFF)
set(MFERENCE_SANITIZE "" CACHE STRING "Sanitizers to build with, e.g. address,undefined or thread")

add_library(mference_flags INTERFACE)
target_include_directories(mference_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(mference_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
  -Woverloaded-virtual -Wcast-align -Werror)
# g++ 12 warns of overlaps, bounds and uninitialised bytes inside its own std::string and intrinsics
# once they are inlined (GCC bugs 105651 and 105593); clang and the sanitizers look for real ones.
set(false_positives -Wno-restrict -Wno-maybe-uninitialized -Wno-array-bounds -Wno-stringop-overflow
                    -Wno-stringop-overread)
target_compile_options(mference_flags INTERFACE
  $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:${false_positives}>)
# g++ collects garbage every few megabytes; up to 512 MiB it is faster not to (a tenth of its time).
target_compile_options(mference_flags INTERFACE
  $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=524288>)
# The same source must give the same bytes on every compiler: no contraction of a*b+c into an fma
# that the source does not spell out.
target_compile_options(mference_flags INTERFACE -ffp-contract=off)

if(MFERENCE_SANITIZE)
  target_compile_options(mference_flags INTERFACE
    -fsanitize=${MFERENCE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(mference_flags INTERFACE -fsanitize=${MFERENCE_SANITIZE})
endif()

if(MFERENCE_BUILD_FUZZERS AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "MFERENCE_BUILD_FUZZERS needs Clang's libFuzzer; configure with "
                      "-DCMAKE_CXX_COMPILER=clang++")
endif()
