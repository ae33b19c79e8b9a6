# Finds every library of docs/dependencies.md. llama and ggml come from the pip prefix under .venv (scripts/setup.sh).
find_package(Threads REQUIRED)

# A prefix or a Python environment that holds one; the presets name .venv-tsan and .venv-portable here.
set(RHAPSODE_LLAMA_PREFIX "${CMAKE_SOURCE_DIR}/.venv" CACHE PATH "Where lib/cmake/llama and lib/cmake/ggml are")
if(NOT RHAPSODE_LLAMA_PREFIX)
  set(RHAPSODE_LLAMA_PREFIX "${CMAKE_SOURCE_DIR}/.venv")
endif()
if(NOT EXISTS ${RHAPSODE_LLAMA_PREFIX}/lib/cmake/llama)
  file(GLOB _rhapsode_site ${RHAPSODE_LLAMA_PREFIX}/lib/python3*/site-packages)
  if(NOT _rhapsode_site)
    message(FATAL_ERROR "No ggml and llama in ${RHAPSODE_LLAMA_PREFIX}: run scripts/setup.sh (make setup) first.")
  endif()
  list(GET _rhapsode_site 0 RHAPSODE_LLAMA_PREFIX)
endif()
list(PREPEND CMAKE_PREFIX_PATH ${RHAPSODE_LLAMA_PREFIX})
find_package(llama REQUIRED)

# Headers of libllama-common (chat templates): they are not installed by the wheel, so setup takes them out of the
# same pinned source archive.
set(RHAPSODE_LLAMA_COMMON_HEADERS ${CMAKE_SOURCE_DIR}/.deps/llama-common CACHE PATH "common/ headers of the pinned llama.cpp")
find_library(RHAPSODE_LLAMA_COMMON_FILE llama-common HINTS ${RHAPSODE_LLAMA_PREFIX}/lib NO_DEFAULT_PATH REQUIRED)
# A target, so that the installed package can name it without a path of this machine.
set(RHAPSODE_LLAMA_COMMON_LIBRARY rhapsode_llama_common)
add_library(rhapsode_llama_common UNKNOWN IMPORTED)
set_target_properties(rhapsode_llama_common PROPERTIES
  IMPORTED_LOCATION ${RHAPSODE_LLAMA_COMMON_FILE} INTERFACE_LINK_LIBRARIES llama)

find_package(PkgConfig REQUIRED)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(CURL REQUIRED)
find_package(LibArchive REQUIRED)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(crypto REQUIRED IMPORTED_TARGET libcrypto)
find_package(SQLite3 3.40 REQUIRED)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(gumbo REQUIRED IMPORTED_TARGET gumbo)
find_package(pugixml REQUIRED)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
# Optional: without it, lists of an index that lie on the disk are read by pread.
pkg_check_modules(uring IMPORTED_TARGET liburing)
