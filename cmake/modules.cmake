# One static library per folder of src/. A module lists the modules below it; the include directions
# are checked against this list by tests/check_layers.
#
#   mference_module(NAME [FUZZED] [DEPENDS module...] [LINK target...] [EXCLUDE regex])
#
# collects every .cc of the calling folder (sub-folders included) into `mference_NAME`, except those
# whose path matches EXCLUDE. FUZZED: a build with fuzz targets measures its coverage.
function(mference_module name)
  cmake_parse_arguments(arg "FUZZED" "EXCLUDE" "DEPENDS;LINK" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS *.cc *.h)
  if(arg_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${arg_EXCLUDE}")
  endif()
  list(APPEND sources ${PROJECT_SOURCE_DIR}/src/base/error.h)
  add_library(mference_${name} STATIC ${sources})
  set_target_properties(mference_${name} PROPERTIES LINKER_LANGUAGE CXX)
  if(arg_FUZZED AND MFERENCE_BUILD_FUZZERS)
    target_compile_options(mference_${name} PRIVATE -fsanitize=fuzzer-no-link)
    target_link_options(mference_${name} INTERFACE -fsanitize=fuzzer-no-link)
    target_precompile_headers(mference_${name} REUSE_FROM mference_precompiled_fuzzed)
  else()
    target_precompile_headers(mference_${name} REUSE_FROM mference_precompiled)
  endif()
  list(TRANSFORM arg_DEPENDS PREPEND mference_)
  target_link_libraries(mference_${name} PUBLIC mference_flags ${arg_DEPENDS} ${arg_LINK})
endfunction()

#   mference_test(NAME [LINK target...])
#
# builds every *_test.cc under tests/NAME into one program `NAME_test` and registers it with CTest.
function(mference_test name)
  cmake_parse_arguments(arg "" "" "LINK" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${name}/*.cc ${name}/*.h)
  if(NOT sources)
    return()
  endif()
  add_executable(${name}_test ${sources})
  target_link_libraries(${name}_test PRIVATE mference_${name} mference_testing ${arg_LINK}
                        GTest::gmock GTest::gtest_main)
  if(TARGET mference_precompiled_tests AND NOT name STREQUAL kernels)
    target_precompile_headers(${name}_test REUSE_FROM mference_precompiled_tests)
  endif()
  add_test(NAME ${name} COMMAND ${name}_test)
endfunction()
