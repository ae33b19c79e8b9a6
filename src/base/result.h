// Helpers around Result<T> for code inside the library: making errors and passing them on.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "rhapsode/result.h"

namespace rhapsode {

// make_error(ErrorKind::kCorrupt, "{}: tensor '{}' needs {} bytes", path, name, bytes)
template <typename... Args>
Error make_error(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  return Error{kind, fmt::format(format, std::forward<Args>(args)...)};
}

// An error of the given errno with the system's own words: kNotFound, kPermission, kNoSpace or kIo by code.
Error make_system_error(int error_number, const std::string& what);

}  // namespace rhapsode

#define RH_CONCAT_INNER(a, b) a##b
#define RH_CONCAT(a, b) RH_CONCAT_INNER(a, b)

// RH_TRY(auto file, open(path)): declares the value, or returns the error from the enclosing function.
#define RH_TRY(declaration, expression)                                \
  auto RH_CONCAT(rh_result_, __LINE__) = (expression);                 \
  if (!RH_CONCAT(rh_result_, __LINE__).ok())                           \
    return ::rhapsode::Error(RH_CONCAT(rh_result_, __LINE__).error()); \
  declaration = std::move(RH_CONCAT(rh_result_, __LINE__)).value()

// RH_TRY_STATUS(flush()): returns the error from the enclosing function, if there is one.
#define RH_TRY_STATUS(expression)                                     \
  do {                                                                \
    auto rh_status = (expression);                                    \
    if (!rh_status.ok()) return ::rhapsode::Error(rh_status.error()); \
  } while (false)
