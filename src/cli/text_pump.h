// Carries text from the engine's thread to standard output without ever holding the engine up.
//
// The engine's side pushes; the main thread runs the loop, which writes when the reader has room, notices at
// once when the reader has gone away or a signal has come, and then asks for cancellation. Threads: push()
// and finish() from any, run() from one.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"

namespace rhapsode::cli {

class TextPump {
 public:
  static Result<std::unique_ptr<TextPump>> make();
  ~TextPump();
  TextPump(const TextPump&) = delete;
  TextPump& operator=(const TextPump&) = delete;

  void push(std::string_view piece);
  void finish();  // no more pieces will come

  // Returns true after finish(), when all is written or nobody reads. After a signal it gives the reader and
  // finish() half a second, and returns false when finish() has not come by then. `format` turns what has
  // come into what is printed; `cancel` is called once, when there is a reason to stop early.
  bool run(Terminal& terminal, const InterruptGuard& interrupts,
           const std::function<std::string(const std::string&)>& format, const std::function<void()>& cancel);

 private:
  explicit TextPump(int wake_fd) : wake_fd_(wake_fd) {}
  void wake() const;
  bool take(std::string& text);  // true once finished

  int wake_fd_;
  std::mutex mutex_;
  std::string pending_;    // under mutex_
  bool finished_ = false;  // under mutex_
};

}  // namespace rhapsode::cli
