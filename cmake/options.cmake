# Build-wide switches: language level, warnings, sanitizers. One place, applied through the
# `mference_flags` interface target so that nothing leaks into consumers.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

option(MFERENCE_BUILD_TESTS "Build the test programs" ON)
option(MFERENCE_BUILD_BENCHMARKS "Build the micro-benchmarks" OFF)
set(MFERENCE_SANITIZE "" CACHE STRING "Sanitizers to build with, e.g. address,undefined or thread")

add_library(mference_flags INTERFACE)
target_include_directories(mference_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(mference_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
  -Woverloaded-virtual -Wcast-align -Werror)
# The same source must give the same bytes on every compiler: no contraction of a*b+c into an fma
# that the source does not spell out.
target_compile_options(mference_flags INTERFACE -ffp-contract=off)

if(MFERENCE_SANITIZE)
  target_compile_options(mference_flags INTERFACE
    -fsanitize=${MFERENCE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(mference_flags INTERFACE -fsanitize=${MFERENCE_SANITIZE})
endif()
