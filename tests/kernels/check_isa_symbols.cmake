# Fails if an object file built for one instruction set defines a function that other files may end up
# with: a weak symbol (an inline function or a template that was not inlined) outside of the
# instruction set's own namespace. The linker keeps one copy of a weak symbol, and a copy full of
# AVX-512 would then run, and crash, on a CPU without it.
#
#   cmake -DNM=nm -DOBJECTS=a.o,b.o -P check_isa_symbols.cmake
string(REPLACE "," ";" objects "${OBJECTS}")
set(checked 0)
set(leaks "")
foreach(object IN LISTS objects)
  if(NOT object MATCHES "/(avx2|avx512|neon)/")
    continue()
  endif()
  set(isa ${CMAKE_MATCH_1})
  math(EXPR checked "${checked} + 1")
  execute_process(COMMAND ${NM} --defined-only ${object} OUTPUT_VARIABLE symbols
                  COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" symbols "${symbols}")
  foreach(line IN LISTS symbols)
    if(line MATCHES " [Wu] (.*)$" AND NOT CMAKE_MATCH_1 MATCHES "[0-9]${isa}")
      list(APPEND leaks "${object}: ${line}")
    endif()
  endforeach()
endforeach()
if(checked EQUAL 0)
  message(FATAL_ERROR "none of the objects is of a special instruction set: ${OBJECTS}")
endif()
if(leaks)
  list(JOIN leaks "\n  " leaks)
  message(FATAL_ERROR "weak symbols that are not of one instruction set:\n  ${leaks}")
endif()
