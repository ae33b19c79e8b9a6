#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text_check.h"
#include "text/extractors.h"
#include "text/readers.h"
#include "text/text_builder.h"

namespace rhapsode::text {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostOutputBytes = 2000;  // of one cell's outputs together

// Only what is read gets into memory: not the pictures, which are most of a notebook's bytes.
bool is_wanted(const std::string& key) {
  static constexpr std::array kWanted = {"cells",      "cell_type",  "source", "outputs", "output_type",
                                         "text",       "data",       "ename",  "evalue",  "text/plain",
                                         "metadata",   "kernelspec", "title",  "authors", "name",
                                         "worksheets", "input"};
  for (const char* wanted : kWanted) {
    if (key == wanted) return true;
  }
  return false;
}

// A string, or lines in an array.
std::string joined(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  std::string out;
  if (value.is_array()) {
    for (const Json& line : value) {
      if (line.is_string()) out += line.get_ref<const std::string&>();
    }
  }
  return out;
}

const Json& member(const Json& object, const char* key) {
  static const Json kNone;
  if (!object.is_object()) return kNone;
  const auto found = object.find(key);
  return found == object.end() ? kNone : *found;
}

std::string output_text(const Json& outputs) {
  std::string out;
  if (!outputs.is_array()) return out;
  for (const Json& output : outputs) {
    std::string text = joined(member(output, "text"));
    if (text.empty()) text = joined(member(member(output, "data"), "text/plain"));
    if (member(output, "output_type") == "error") {
      text = joined(member(output, "ename")) + ": " + joined(member(output, "evalue"));
    }
    if (!text.empty() && !out.empty() && !out.ends_with('\n')) out += '\n';
    out += text;
  }
  return out;
}

void add_lines(TextBuilder& builder, std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  if (text.empty()) return;
  builder.end_block();
  const size_t begin = builder.start(BreakStrength::kBlock);
  builder.verbatim(text);
  RowBlock block{.begin = begin, .end = builder.size(), .lead = {}, .rows = {begin}};
  for (size_t at = text.find('\n'); at != std::string_view::npos; at = text.find('\n', at + 1)) {
    block.rows.push_back(begin + at + 1);
  }
  builder.row_block(std::move(block));
  builder.end_block();
}

Status add_cell(const Json& cell, size_t number, TextBuilder& builder, Document& document) {
  const std::string type = joined(member(cell, "cell_type"));
  std::string source = joined(member(cell, "source"));
  if (source.empty()) source = joined(member(cell, "input"));  // notebooks of format 3
  if (type == "markdown" && source.find_first_not_of(" \t\r\n") != std::string::npos) {
    RH_TRY(Document part, read_markdown(document.name, std::move(source)));
    if (document.title.empty()) document.title = part.title;
    builder.document(std::move(part));
    return {};
  }
  add_lines(builder, source);
  std::string output = output_text(member(cell, "outputs"));
  if (output.size() > kMostOutputBytes) {
    size_t end = kMostOutputBytes;
    while (end > 0 && (static_cast<unsigned char>(output[end]) & 0xC0) == 0x80) --end;
    document.warnings.push_back(
        fmt::format("the output of cell {} is cut to {} of {} bytes", number, end, output.size()));
    output.resize(end);
  }
  add_lines(builder, output);
  return {};
}

}  // namespace

Result<Document> read_notebook(std::string name, std::string_view json) {
  Document document;
  document.name = std::move(name);
  document.kind = DocumentKind::kNotebook;
  const auto keep = [](int, Json::parse_event_t event, Json& value) {
    return event != Json::parse_event_t::key || is_wanted(value.get_ref<const std::string&>());
  };
  if (json.starts_with("\xEF\xBB\xBF")) json.remove_prefix(3);
  const Json notebook = Json::parse(json.begin(), json.end(), keep, /*allow_exceptions=*/false);
  if (notebook.is_discarded() || !notebook.is_object()) {
    return make_error(ErrorKind::kCorrupt, "{} is no sound notebook: its JSON cannot be parsed",
                      document.name);
  }
  const Json* cells = &member(notebook, "cells");
  const Json& sheets = member(notebook, "worksheets");
  if (!cells->is_array() && sheets.is_array() && !sheets.empty()) cells = &member(sheets.front(), "cells");
  if (!cells->is_array())
    return make_error(ErrorKind::kCorrupt, "{} is no notebook: it has no cells", document.name);
  document.title = joined(member(member(notebook, "metadata"), "title"));
  TextBuilder builder;
  size_t number = 0;
  for (const Json& cell : *cells) RH_TRY_STATUS(add_cell(cell, ++number, builder, document));
  if (builder.empty()) return make_error(ErrorKind::kNotFound, "{} holds no text", document.name);
  builder.finish(document);
  return document;
}

}  // namespace rhapsode::text
