# Headers that nearly every source file includes, compiled once per build: parsing the standard
# library, JSON and GoogleTest again in each of some 400 files is up to half of what a build costs.
# Every file still includes what it uses: a build with a compiler cache, which gains more by seeing
# each file alone, goes without and so checks it.
if(CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
endif()

set(common_headers
  <algorithm> <array> <atomic> <chrono> <cstdint> <filesystem> <functional> <map> <memory> <mutex>
  <optional> <set> <span> <string> <string_view> <thread> <utility> <vector>
  <fmt/format.h> <nlohmann/json.hpp>)

# mference_precompiled_headers(NAME [LINK target...] [HEADERS header...])
#
# compiles the common headers and these with the project's flags; a target takes them by
# target_precompile_headers(TARGET REUSE_FROM NAME).
function(mference_precompiled_headers name)
  cmake_parse_arguments(arg "" "" "LINK;HEADERS" ${ARGN})
  file(CONFIGURE OUTPUT ${name}.cc CONTENT "")
  add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
  target_link_libraries(${name} PRIVATE mference_flags fmt::fmt nlohmann_json::nlohmann_json ${arg_LINK})
  target_precompile_headers(${name} PRIVATE ${common_headers} ${arg_HEADERS})
endfunction()
