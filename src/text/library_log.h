// Keeps libllama and libggml quiet and catches what they complain about, so that an Error can say it.
//
// Both libraries log through one process-wide callback, to stderr by default. The first LibraryLog made
// replaces it for the rest of the process: nothing is printed any more, and while a LibraryLog lives, the
// last warning or error that its own thread caused is kept. Ownership: a local variable around the calls to
// watch; they nest. Threads: each sees only its own messages. Errors: none. Cost: a thread-local pointer.
#pragma once

#include <string>

namespace rhapsode::text {

class LibraryLog {
 public:
  LibraryLog();
  ~LibraryLog();
  LibraryLog(const LibraryLog&) = delete;
  LibraryLog& operator=(const LibraryLog&) = delete;

  // The last error, else the last warning, in one line without the C function's name; empty if there was
  // none.
  const std::string& last_complaint() const { return error_.empty() ? warning_ : error_; }

  // Only for the callback.
  void keep(bool is_error, const char* text);

 private:
  LibraryLog* outer_;
  std::string error_;
  std::string warning_;
};

}  // namespace rhapsode::text
