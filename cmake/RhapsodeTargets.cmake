# One place for warnings, sanitizers and the shape of test, benchmark and fuzz targets.
find_program(RHAPSODE_CCACHE ccache)
if(RHAPSODE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths below the source folder count as relative, so that a second clone finds what the first one compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${RHAPSODE_CCACHE})
endif()

add_library(rhapsode_flags INTERFACE)
target_compile_options(rhapsode_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror=return-type)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns of overlapping copies inside its own std::string.
  target_compile_options(rhapsode_flags INTERFACE -Wno-restrict)
endif()
target_include_directories(rhapsode_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
if(RHAPSODE_SANITIZE)
  string(REPLACE ";" "," _sanitizers "${RHAPSODE_SANITIZE}")
  target_compile_options(rhapsode_flags INTERFACE -fsanitize=${_sanitizers} -fno-omit-frame-pointer -g)
  target_link_options(rhapsode_flags INTERFACE -fsanitize=${_sanitizers})
endif()
if(RHAPSODE_FUZZ)
  target_compile_options(rhapsode_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# rhapsode_test(name SOURCES a_test.cpp ... [LABELS slow] [LIBS x]): one GoogleTest program, one ctest entry a case.
function(rhapsode_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LABELS;LIBS" ${ARGN})
  if(NOT RHAPSODE_TESTS)
    add_executable(${name} EXCLUDE_FROM_ALL ${ARG_SOURCES})  # so that options given to it later have a target
    return()
  endif()
  find_package(GTest REQUIRED)
  include(GoogleTest)
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE
    RHAPSODE_SOURCE_DIR="${CMAKE_SOURCE_DIR}" RHAPSODE_TEST_DATA="${CMAKE_BINARY_DIR}/tests/data")
  target_link_libraries(${name} PRIVATE rhapsode rhapsode_flags GTest::gmock GTest::gtest_main ${ARG_LIBS})
  if(NOT ARG_LABELS)
    set(ARG_LABELS fast)  # an empty value would swallow the property behind it
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES
    LABELS "${ARG_LABELS}" TIMEOUT 600
    # Tests share two cores with the build and with one another: waiting threads must not spin.
    ENVIRONMENT OMP_WAIT_POLICY=passive)
endfunction()

# rhapsode_bench(name SOURCES a_bench.cpp ... [LIBS x]): one Google Benchmark program, build/bench/<name>_bench.
function(rhapsode_bench name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  find_package(benchmark REQUIRED)
  add_executable(${name}_bench ${ARG_SOURCES})
  target_link_libraries(${name}_bench PRIVATE rhapsode rhapsode_flags benchmark::benchmark_main ${ARG_LIBS})
  set_target_properties(${name}_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endfunction()

# rhapsode_fuzz(name SOURCES a_fuzz.cpp ... [LIBS x] [ARGS ...]): one libFuzzer program and a ctest entry (label fuzz) that
# runs it for RHAPSODE_FUZZ_SECONDS from an empty corpus; ARGS are options of libFuzzer.
set(RHAPSODE_FUZZ_SECONDS 20 CACHE STRING "Seconds a fuzz target runs in ctest")
function(rhapsode_fuzz name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS;ARGS" ${ARGN})
  add_executable(${name}_fuzz ${ARG_SOURCES})
  target_include_directories(${name}_fuzz PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${name}_fuzz PRIVATE rhapsode rhapsode_flags ${ARG_LIBS})
  target_link_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
  add_test(NAME fuzz.${name} COMMAND ${name}_fuzz -max_total_time=${RHAPSODE_FUZZ_SECONDS} -rss_limit_mb=2048 -timeout=10
    ${ARG_ARGS})
  set_tests_properties(fuzz.${name} PROPERTIES LABELS fuzz)
endfunction()
