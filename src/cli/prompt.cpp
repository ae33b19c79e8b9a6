#include "cli/prompt.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace rhapsode::cli {
namespace {

constexpr size_t kMostBytes =
    256u << 20;  // more is no prompt, and would fill the memory before anyone can say so

Result<std::string> read_descriptor(int fd, const std::string& what) {
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t bytes = ::read(fd, buffer, sizeof buffer);
    if (bytes == 0) return text;
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return make_system_error(errno, fmt::format("cannot read {}", what));
    text.append(buffer, static_cast<size_t>(bytes));
    if (text.size() > kMostBytes) {
      return make_error(ErrorKind::kTooLarge, "{} holds more than {} bytes", what, kMostBytes);
    }
  }
}

Result<std::string> read_file(const std::string& path, const std::string& what) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return make_system_error(errno, fmt::format("cannot read {}", what));
  auto text = read_descriptor(fd, what);
  close(fd);
  return text;
}

Error misuse(std::string message) {
  return Error{ErrorKind::kInvalidArgument, std::move(message)};
}

Result<std::string> read_prompt(const Invocation& invocation) {
  const GenerateSettings& settings = invocation.settings.generate;
  if (!invocation.arguments.empty()) {
    if (!settings.file.empty())
      return misuse("the prompt is given twice, as an argument and with --file; drop one");
    return invocation.arguments.front();
  }
  if (!settings.file.empty() && settings.file != "-") {
    return read_file(settings.file.string(), "the prompt file " + settings.file.string());
  }
  if (settings.file.empty() && isatty(STDIN_FILENO)) {
    return misuse("there is no prompt; give it as an argument, with -f FILE or through a pipe");
  }
  return read_descriptor(STDIN_FILENO, "the prompt on standard input");
}

}  // namespace

Result<std::string> text_or_file(const std::string& option, const std::string& value, std::string_view mark) {
  if (value.empty() || value.find(mark) != std::string::npos) return value;
  return read_file(value, fmt::format("the file {} that {} names", value, option));
}

Status read_constraints(SamplingOptions& sampling) {
  if (!sampling.grammar.empty() && !sampling.json_schema.empty()) {
    return misuse("--grammar and --json-schema exclude each other; drop one of them");
  }
  RH_TRY(sampling.grammar, text_or_file("--grammar", sampling.grammar, "::="));
  RH_TRY(sampling.json_schema, text_or_file("--json-schema", sampling.json_schema, "{"));
  return {};
}

Result<std::string> read_standard_input(const std::string& what) {
  RH_TRY(std::string text, read_descriptor(STDIN_FILENO, what));
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

Result<Request> build_request(const Invocation& invocation) {
  const GenerateSettings& settings = invocation.settings.generate;
  Request request = invocation.settings.request;
  if (settings.raw && !settings.system.empty()) {
    return misuse("--system needs the chat template, which --raw turns off; drop one of them");
  }
  RH_TRY_STATUS(read_constraints(request.sampling));

  RH_TRY(std::string prompt, read_prompt(invocation));
  if (settings.raw) {
    if (prompt.empty()) return misuse("the prompt is empty; give some text");
    request.text = std::move(prompt);
    return request;
  }
  // Files and pipes end in a line feed that nobody means to send.
  if (prompt.ends_with('\n')) prompt.pop_back();
  if (prompt.empty()) return misuse("the prompt is empty; give some text");
  if (!settings.system.empty()) request.messages.push_back({"system", settings.system});
  request.messages.push_back({"user", std::move(prompt)});
  return request;
}

}  // namespace rhapsode::cli
