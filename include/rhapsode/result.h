// Result<T>: a value or an Error, returned by every call of the library that can fail.
//
// The library never throws on purpose, prints, aborts or exits. An Error says in one sentence what went
// wrong, where, and what the caller can do; its kind tells programs how to react. Cost: one std::variant.
// Threads: a Result is an ordinary value.
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace rhapsode {

enum class ErrorKind {
  kInvalidArgument,  // the caller asked for something that has no meaning
  kNotFound,         // a file, model, source or name does not exist
  kCorrupt,          // stored bytes are damaged or hostile
  kUnsupported,      // well-formed, but outside what this build can treat exactly
  kTooLarge,         // over a limit of the model or a cap of the user
  kNoSpace,          // disk or memory is exhausted
  kPermission,       // the system refuses access
  kIo,               // reading or writing failed for another reason
  kNetwork,          // a download failed
  kCancelled,        // the caller cancelled
  kInternal,         // a bug: please report it
};

// Stable, lower-case name of a kind, for --json and logs ("invalid_argument").
const char* to_string(ErrorKind kind);

struct Error {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Only after ok().
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // Only after !ok().
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

// A Result without a value.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), failed_(true) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return !failed_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return error_; }

 private:
  Error error_;
  bool failed_ = false;
};

using Status = Result<void>;

}  // namespace rhapsode
