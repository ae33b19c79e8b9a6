#include "base/result.h"

#include <cerrno>
#include <system_error>

namespace rhapsode {

const char* to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
      return "invalid_argument";
    case ErrorKind::kNotFound:
      return "not_found";
    case ErrorKind::kCorrupt:
      return "corrupt";
    case ErrorKind::kUnsupported:
      return "unsupported";
    case ErrorKind::kTooLarge:
      return "too_large";
    case ErrorKind::kNoSpace:
      return "no_space";
    case ErrorKind::kPermission:
      return "permission";
    case ErrorKind::kIo:
      return "io";
    case ErrorKind::kNetwork:
      return "network";
    case ErrorKind::kCancelled:
      return "cancelled";
    case ErrorKind::kInternal:
      return "internal";
  }
  return "internal";
}

Error make_system_error(int error_number, const std::string& what) {
  ErrorKind kind = ErrorKind::kIo;
  if (error_number == ENOENT || error_number == ENOTDIR) kind = ErrorKind::kNotFound;
  if (error_number == EACCES || error_number == EPERM || error_number == EROFS) kind = ErrorKind::kPermission;
  if (error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG || error_number == ENOMEM) {
    kind = ErrorKind::kNoSpace;
  }
  return make_error(kind, "{}: {}", what, std::generic_category().message(error_number));
}

}  // namespace rhapsode
