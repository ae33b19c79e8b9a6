#include "text/source_gate.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/charset.h"
#include "text/file_name.h"

namespace rhapsode::text {
namespace {

constexpr size_t kSampleBytes = size_t{256} << 10;
constexpr size_t kLongLineBytes = 20'000;     // no hand writes such a line of code
constexpr size_t kMeanLineBytes = 500;        // of code; formatted code stays below 60
constexpr size_t kMeanLineMinimum = 8 << 10;  // shorter files may be one table or one licence

constexpr std::array kCodeEndings = {"js",  "mjs", "cjs", "ts", "jsx", "tsx", "css", "scss", "less", "json",
                                     "map", "svg", "c",   "h",  "cc",  "cpp", "hpp", "cs",   "go",   "java",
                                     "kt",  "lua", "php", "pl", "py",  "rb",  "rs",  "sh",   "sql",  "swift"};
// Formats whose lines may be of any length.
constexpr std::array kLongLineEndings = {"html", "htm", "xhtml", "ipynb", "jsonl", "ndjson",
                                         "csv",  "tsv", "eml",   "mbox",  "xml"};

template <typename Endings>
bool is_one_of(std::string_view ending, const Endings& endings) {
  return std::find(endings.begin(), endings.end(), ending) != endings.end();
}

std::string limit_text(uint64_t bytes) {
  return bytes % (1 << 20) == 0 ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} bytes", bytes);
}

bool has_own_reader(std::string_view head) {
  return head.starts_with("%PDF-") || head.starts_with("PK\x03\x04") || head.starts_with("\xD0\xCF\x11\xE0");
}

// Text has a blank every few letters; base64, minified code and dumps of numbers do not. Scripts without
// spaces are not ASCII.
bool is_dense(std::string_view line) {
  size_t ascii = 0;
  size_t blanks = 0;
  for (const char c : line) {
    if (static_cast<unsigned char>(c) < 0x80) ++ascii;
    if (c == ' ' || c == '\t') ++blanks;
  }
  return ascii * 10 >= line.size() * 8 && blanks * 100 < line.size() * 8;
}

// Appends until `most` bytes are there or the source ends.
Status fill(const ByteSource& source, size_t most, std::string& bytes) {
  constexpr size_t kStep = size_t{1} << 18;
  while (bytes.size() < most) {
    const size_t have = bytes.size();
    const size_t step = std::min(kStep, most - have);
    bytes.resize(have + step);
    const auto count = source(std::as_writable_bytes(std::span(bytes)).subspan(have, step));
    bytes.resize(have + (count.ok() ? *count : 0));
    if (!count.ok()) return count.error();
    if (*count == 0) break;
  }
  return {};
}

std::string content_reason(std::string_view name, std::string_view content) {
  if (has_own_reader(content)) return {};
  if (looks_binary(content)) return "binary";
  if (looks_minified(name, content)) return "minified";
  return {};
}

}  // namespace

std::string minified_name_reason(std::string_view name) {
  const std::string file = lower_file_name(name);
  for (const std::string_view ending : {".min.js", ".min.mjs", ".min.css", ".js.map", ".css.map"}) {
    if (file.ends_with(ending)) return "minified";
  }
  return {};
}

bool looks_minified(std::string_view name, std::string_view content) {
  const std::string ending = file_ending(name);
  if (is_one_of(ending, kLongLineEndings)) return false;
  const bool code = is_one_of(ending, kCodeEndings);
  size_t lines = 0;
  for (std::string_view rest = content; !rest.empty(); ++lines) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.size() >= kLongLineBytes && (code || is_dense(line))) return true;
  }
  return code && content.size() >= kMeanLineMinimum &&
         content.size() / std::max<size_t>(lines, 1) > kMeanLineBytes;
}

Result<GatedBytes> read_gated(const std::string& name, const ByteSource& source, GateOptions options) {
  GatedBytes out;
  if (!options.any_content) out.skip_reason = minified_name_reason(name);
  const std::string too_large = "larger than " + limit_text(options.most_bytes);
  if (out.skip_reason.empty() && options.known_bytes.value_or(0) > options.most_bytes)
    out.skip_reason = too_large;
  if (!out.skip_reason.empty()) return out;

  std::string bytes = std::move(options.head);
  const auto most = static_cast<size_t>(options.most_bytes);
  RH_TRY_STATUS(fill(source, std::min(kSampleBytes, most + 1), bytes));
  if (!options.any_content) out.skip_reason = content_reason(name, bytes);
  if (out.skip_reason.empty()) {
    bytes.reserve(static_cast<size_t>(std::min(options.known_bytes.value_or(0), options.most_bytes)) + 1);
    RH_TRY_STATUS(fill(source, most + 1, bytes));
    if (bytes.size() > most) {
      out.skip_reason = too_large;
    } else if (!options.any_content) {
      out.skip_reason = holds_no_text(bytes) ? "holds no text" : content_reason(name, bytes);
    }
  }
  if (out.skip_reason.empty()) out.bytes = std::move(bytes);
  return out;
}

}  // namespace rhapsode::text
