# Whether this build has the CUDA back end. AUTO: when nvcc is found. Only files below a cuda/ folder see CUDA headers;
# cuBLASLt is opened at run time, so the program starts where no toolkit or GPU is.
set(RHAPSODE_CUDA AUTO CACHE STRING "The CUDA back end: AUTO (when nvcc is found), ON or OFF")
set_property(CACHE RHAPSODE_CUDA PROPERTY STRINGS AUTO ON OFF)

set(RHAPSODE_HAS_CUDA FALSE)
if(NOT RHAPSODE_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  # One architecture: Hopper's own instructions exist in no other, and each one more costs compile time.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90a)
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 knows it of nvcc 12 at most
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    find_package(CUDAToolkit 12.4 REQUIRED)
    set(RHAPSODE_HAS_CUDA TRUE)
  elseif(RHAPSODE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "RHAPSODE_CUDA is ON but nvcc was not found: put it into PATH, or set CUDACXX or RHAPSODE_CUDA=OFF.")
  endif()
endif()
message(STATUS "CUDA back end: ${RHAPSODE_HAS_CUDA}")
