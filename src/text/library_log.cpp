#include "text/library_log.h"

#include <llama.h>

#include <algorithm>
#include <mutex>
#include <string_view>

namespace rhapsode::text {
namespace {

thread_local LibraryLog* current_log = nullptr;

void on_message(ggml_log_level level, const char* text, void*) {
  if (!current_log || !text) return;
  if (level == GGML_LOG_LEVEL_ERROR) current_log->keep(true, text);
  if (level == GGML_LOG_LEVEL_WARN) current_log->keep(false, text);
}

// "llama_model_load: error loading model: x\n" -> "error loading model: x"
std::string tidy(std::string_view text) {
  const size_t colon = text.find(": ");
  if (colon != std::string_view::npos && text.substr(0, colon).find(' ') == std::string_view::npos) {
    text.remove_prefix(colon + 2);
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  std::string line(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

}  // namespace

LibraryLog::LibraryLog() : outer_(current_log) {
  static std::once_flag once;
  std::call_once(once, [] { llama_log_set(on_message, nullptr); });
  current_log = this;
}

LibraryLog::~LibraryLog() {
  current_log = outer_;
}

void LibraryLog::keep(bool is_error, const char* text) {
  std::string line = tidy(text);
  // "failed to load model" only repeats that something failed.
  if (line.empty() || line == "failed to load model" || line == "failed to parse grammar") return;
  (is_error ? error_ : warning_) = std::move(line);
}

}  // namespace rhapsode::text
