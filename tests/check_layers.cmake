# Checks that include directions obey the layers: a file of src/MODULE may include only headers of
# its own module and of the modules that src/MODULE/CMakeLists.txt names after DEPENDS.
#
#   cmake -DSOURCE_DIR=... -P check_layers.cmake

cmake_minimum_required(VERSION 3.25)

file(GLOB lists ${SOURCE_DIR}/src/*/CMakeLists.txt)
set(violations "")
foreach(list IN LISTS lists)
  get_filename_component(folder ${list} DIRECTORY)
  get_filename_component(module ${folder} NAME)
  file(READ ${list} text)
  set(allowed ${module})
  if(text MATCHES "mference_module\\(${module}[^)]*DEPENDS ([a-z ]+)")
    string(REPLACE " " ";" depends "${CMAKE_MATCH_1}")
    list(APPEND allowed ${depends})
  endif()
  file(GLOB_RECURSE sources ${folder}/*.cc ${folder}/*.h)
  foreach(source IN LISTS sources)
    file(STRINGS ${source} includes REGEX "^#include \"[a-z0-9_]+/")
    foreach(include IN LISTS includes)
      string(REGEX REPLACE "^#include \"([a-z0-9_]+)/.*" "\\1" used "${include}")
      if(NOT used IN_LIST allowed)
        string(APPEND violations "${source}: ${include} (${module} may use: ${allowed})\n")
      endif()
    endforeach()
  endforeach()
endforeach()
if(violations)
  message(FATAL_ERROR "includes against the layers:\n${violations}")
endif()
