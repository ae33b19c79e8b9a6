// A tracer of spans in time, written as Chrome/Perfetto JSON ("traceEvents", complete events in
// microseconds).
//
// A Tracer that was not opened on a file does nothing and costs one branch a call. Spans are kept in memory
// and written on close(), at most kMostSpans of them; what did not fit is counted in the file's "dropped"
// field. Threads: all functions from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace rhapsode {

using TraceArguments = std::map<std::string, int64_t>;

class Tracer {
 public:
  Tracer() = default;
  ~Tracer() { (void)close(); }
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // Fails when the file cannot be created.
  Status open(const std::filesystem::path& path);
  bool enabled() const { return enabled_; }

  // One finished span. `track` groups spans into rows: 0 is the engine, n is request n.
  void span(const char* name, int64_t begin_ns, int64_t end_ns, int64_t track = 0,
            TraceArguments arguments = {});

  // Writes the file; later spans are ignored. Called by the destructor too, which cannot report an error.
  Status close();

 private:
  struct Span {
    const char* name;
    int64_t begin_ns;
    int64_t end_ns;
    int64_t track;
    TraceArguments arguments;
  };
  static constexpr size_t kMostSpans = 2'000'000;

  bool enabled_ = false;  // set before threads start
  std::filesystem::path path_;
  std::mutex mutex_;
  std::vector<Span> spans_;  // guarded by mutex_
  uint64_t dropped_ = 0;     // guarded by mutex_
};

}  // namespace rhapsode
