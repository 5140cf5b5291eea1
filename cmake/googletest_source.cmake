# GoogleTest from its source, for targets that the installed library is not built for.
set(MFERENCE_GOOGLETEST_SOURCE /usr/src/googletest CACHE PATH "Source tree of GoogleTest")
if(NOT EXISTS ${MFERENCE_GOOGLETEST_SOURCE}/CMakeLists.txt)
  message(FATAL_ERROR "No GoogleTest source in ${MFERENCE_GOOGLETEST_SOURCE}: install the package "
                      "googletest, or set MFERENCE_GOOGLETEST_SOURCE")
endif()
enable_language(C)
set(INSTALL_GTEST OFF)
add_subdirectory(${MFERENCE_GOOGLETEST_SOURCE} ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
if(NOT TARGET GTest::gmock)
  add_library(GTest::gmock ALIAS gmock)
endif()
