#include "base/trace.h"

#include <cerrno>
#include <cstdio>

namespace rhapsode {

Status Tracer::open(const std::filesystem::path& path) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (!file) return make_system_error(errno, "creating the trace file " + path.string());
  std::fclose(file);
  path_ = path;
  enabled_ = true;
  return {};
}

void Tracer::span(const char* name, int64_t begin_ns, int64_t end_ns, int64_t track,
                  TraceArguments arguments) {
  if (!enabled_) return;
  std::lock_guard lock(mutex_);
  if (spans_.size() >= kMostSpans) {
    ++dropped_;
    return;
  }
  spans_.push_back({name, begin_ns, end_ns, track, std::move(arguments)});
}

Status Tracer::close() {
  if (!enabled_) return {};
  std::lock_guard lock(mutex_);
  enabled_ = false;
  std::string json = fmt::format("{{\"displayTimeUnit\":\"ms\",\"dropped\":{},\"traceEvents\":[", dropped_);
  const char* separator = "\n";
  for (const Span& span : spans_) {
    std::string arguments;
    for (const auto& [name, value] : span.arguments) {
      arguments += fmt::format("{}\"{}\":{}", arguments.empty() ? "" : ",", name, value);
    }
    json += fmt::format(
        "{}{{\"ph\":\"X\",\"pid\":1,\"tid\":{},\"name\":\"{}\",\"ts\":{:.3f},\"dur\":{:.3f},\"args\":{{{}}}}"
        "}",
        separator, span.track, span.name, span.begin_ns * 1e-3, (span.end_ns - span.begin_ns) * 1e-3,
        arguments);
    separator = ",\n";
  }
  json += "\n]}\n";
  spans_.clear();
  std::FILE* file = std::fopen(path_.c_str(), "w");
  if (!file) return make_system_error(errno, "writing the trace file " + path_.string());
  const bool written = std::fwrite(json.data(), 1, json.size(), file) == json.size();
  if (std::fclose(file) != 0 || !written)
    return make_system_error(errno, "writing the trace file " + path_.string());
  return {};
}

}  // namespace rhapsode
