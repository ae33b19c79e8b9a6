# make install: the static library, its public headers, the program, the shared libraries of ggml and llama in
# lib/rhapsode (found by relative run paths, so the tree may be moved), the CMake package and the licences.
# Components: runtime (program and what it loads), dev (headers, library, CMake package).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(_private ${CMAKE_INSTALL_LIBDIR}/rhapsode)
file(RELATIVE_PATH _bin_to_private /${CMAKE_INSTALL_BINDIR} /${_private})
set_target_properties(rhapsode_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${_bin_to_private}")
install(TARGETS rhapsode_cli RUNTIME COMPONENT runtime)

# A wheel holds each library three times instead of links; the name that programs load is enough.
# Back ends that are chosen at run time (portable builds) lie beside libggml.
file(GLOB _llama_libraries ${RHAPSODE_LLAMA_PREFIX}/lib/libggml*.so.0 ${RHAPSODE_LLAMA_PREFIX}/lib/libllama*.so.0)
file(GLOB _llama_backends ${RHAPSODE_LLAMA_PREFIX}/lib/libggml-cpu-*.so)
install(PROGRAMS ${_llama_libraries} ${_llama_backends} DESTINATION ${_private} COMPONENT runtime)

install(TARGETS rhapsode ARCHIVE COMPONENT dev)
install(DIRECTORY include/rhapsode DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev FILES_MATCHING PATTERN "*.h")
install(FILES ${CMAKE_BINARY_DIR}/include/rhapsode/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/rhapsode
        COMPONENT dev)
# Routing files of the catalogue's models, found from the program's own place (engine/routing_file.cpp).
install(DIRECTORY models/routing DESTINATION ${CMAKE_INSTALL_DATADIR}/rhapsode COMPONENT runtime)
install(FILES LICENSE THIRD_PARTY_NOTICES.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)

# What a program that links the static library must find and link, said once: from the library's own link line.
# A library that the table does not know stops the build here, not at a user's.
set(RHAPSODE_FIND_DEPENDENCIES "")
set(RHAPSODE_LINK_DEPENDENCIES "")
get_target_property(_links rhapsode LINK_LIBRARIES)
list(REMOVE_DUPLICATES _links)
foreach(_link ${_links})
  set(_find "")
  if(_link MATCHES "BUILD_INTERFACE|^::@" OR _link STREQUAL "nlohmann_json::nlohmann_json"
     OR _link STREQUAL "tomlplusplus::tomlplusplus" OR _link STREQUAL "Eigen3::Eigen")
    continue()  # warnings of this build, marks of its folders, and headers that are compiled in
  elseif(_link STREQUAL "llama")
    set(_link rhapsode::llama rhapsode::ggml rhapsode::ggml-base)
  elseif(_link STREQUAL "rhapsode_llama_common")
    set(_link rhapsode::llama-common)
  elseif(_link MATCHES "^ggml::(ggml|ggml-base)$")
    set(_link rhapsode::${CMAKE_MATCH_1})
  elseif(_link STREQUAL "Threads::Threads")
    set(_find "find_dependency(Threads)")
  elseif(_link STREQUAL "fmt::fmt")
    set(_find "find_dependency(fmt)")
  elseif(_link STREQUAL "CURL::libcurl")
    set(_find "find_dependency(CURL)")
  elseif(_link STREQUAL "LibArchive::LibArchive")
    set(_find "find_dependency(LibArchive)")
  elseif(_link STREQUAL "SQLite::SQLite3")
    set(_find "find_dependency(SQLite3)")
  elseif(_link STREQUAL "CUDA::cudart_static")
    set(_find "find_dependency(CUDAToolkit)")
  elseif(_link MATCHES "^pugixml")
    set(_find "find_dependency(pugixml)")
  elseif(_link MATCHES "^PkgConfig::(.*)$")
    set(_module ${CMAKE_MATCH_1})
    string(REGEX REPLACE "^(hwy|xxhash|crypto|zstd|utf8proc|uring)$" "lib\\1" _package ${_module})
    set(_find "find_dependency(PkgConfig)\npkg_check_modules(${_module} REQUIRED QUIET IMPORTED_TARGET ${_package})")
  else()
    message(FATAL_ERROR "RhapsodeInstall.cmake does not know how a user of the library finds '${_link}': add it.")
  endif()
  if(_find)
    string(APPEND RHAPSODE_FIND_DEPENDENCIES "${_find}\n")
  endif()
  list(APPEND RHAPSODE_LINK_DEPENDENCIES ${_link})
endforeach()
list(REMOVE_DUPLICATES RHAPSODE_LINK_DEPENDENCIES)

set(RHAPSODE_PRIVATE_LIBRARY_DIR ${_private})
set(_package ${CMAKE_INSTALL_LIBDIR}/cmake/rhapsode)
configure_package_config_file(cmake/rhapsode-config.cmake.in ${CMAKE_BINARY_DIR}/rhapsode-config.cmake
  INSTALL_DESTINATION ${_package}
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR RHAPSODE_PRIVATE_LIBRARY_DIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/rhapsode-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/rhapsode-config.cmake ${CMAKE_BINARY_DIR}/rhapsode-config-version.cmake
        DESTINATION ${_package} COMPONENT dev)
