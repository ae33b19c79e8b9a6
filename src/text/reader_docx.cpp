#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "text/dates.h"
#include "text/extractors.h"
#include "text/packaged_document.h"
#include "text/text_builder.h"
#include "text/text_scan.h"
#include "text/xml.h"

namespace rhapsode::text {
namespace {

constexpr std::string_view kBodyPart = "word/document.xml";
constexpr std::string_view kStylesPart = "word/styles.xml";
constexpr std::string_view kFootnotesPart = "word/footnotes.xml";
constexpr std::string_view kEndnotesPart = "word/endnotes.xml";
constexpr std::string_view kCorePart = "docProps/core.xml";

// Heading levels (from 1) by the id of a paragraph style.
using HeadingStyles = std::map<std::string, int, std::less<>>;

int level_of_name(std::string_view name) {
  std::string low = ascii_lower(name);
  std::erase(low, ' ');
  if (low == "title") return 1;
  const bool heading = low.size() == 8 && low.starts_with("heading") && low[7] >= '1' && low[7] <= '9';
  return heading ? low[7] - '0' : 0;
}

int outline_level(const pugi::xml_node& properties) {
  const std::string_view value = local_attribute(child_named(properties, "outlineLvl"), "val");
  return value.size() == 1 && value[0] >= '0' && value[0] <= '8' ? value[0] - '0' + 1 : 0;
}

HeadingStyles heading_styles(const XmlDocument& styles) {
  HeadingStyles levels;
  styles.each([&](const pugi::xml_node& node) {
    if (local_name(node) != "style") return;
    int level = level_of_name(local_attribute(child_named(node, "name"), "val"));
    if (level == 0) level = outline_level(child_named(node, "pPr"));
    if (level > 0) levels[std::string(local_attribute(node, "styleId"))] = level;
  });
  return levels;
}

// Writes the paragraphs and tables of one part.
class PartWriter {
 public:
  PartWriter(TextBuilder& builder, const HeadingStyles& headings) : builder_(builder), headings_(headings) {}

  void write(const pugi::xml_node& root) {
    const auto on_leave = [this](const pugi::xml_node& node) { leave(node); };
    for (pugi::xml_node node = root.first_child(); node;) node = next_node(node, root, enter(node), on_leave);
    builder_.end_block();
  }

 private:
  bool enter(const pugi::xml_node& node);
  void enter_paragraph(const pugi::xml_node& node);
  void enter_row(const pugi::xml_node& row);
  void leave(const pugi::xml_node& node);
  void leave_table();

  TextBuilder& builder_;
  const HeadingStyles& headings_;
  int heading_ = 0;  // level of the paragraph being written
  size_t heading_begin_ = 0;
  int tables_ = 0;  // open ones; those inside a cell are part of its text
  bool first_cell_ = true;
  bool lead_row_ = false;
  RowBlock rows_;
};

void PartWriter::enter_paragraph(const pugi::xml_node& node) {
  if (tables_ > 0) return builder_.words(" ");
  const pugi::xml_node properties = child_named(node, "pPr");
  const std::string_view style = local_attribute(child_named(properties, "pStyle"), "val");
  const auto known = headings_.find(style);
  heading_ = known != headings_.end() ? known->second : level_of_name(style);
  if (heading_ == 0) heading_ = outline_level(properties);
  if (heading_ > 0) {
    builder_.end_block();
    heading_begin_ = builder_.start(BreakStrength::kSection);
  } else if (child_named(properties, "numPr")) {
    builder_.end_line();
    builder_.start(BreakStrength::kLine);
    builder_.verbatim("- ");
  }
}

void PartWriter::enter_row(const pugi::xml_node& row) {
  first_cell_ = true;
  if (tables_ != 1) return;
  rows_.rows.push_back(builder_.start(BreakStrength::kLine));
  if (rows_.rows.size() > 1) return;
  rows_.begin = rows_.rows.front();
  const pugi::xml_node look = child_named(child_named(row.parent(), "tblPr"), "tblLook");
  lead_row_ = child_named(child_named(row, "trPr"), "tblHeader") || local_attribute(look, "firstRow") == "1";
}

bool PartWriter::enter(const pugi::xml_node& node) {
  if (node.type() != pugi::node_element) return false;
  const std::string_view tag = local_name(node);
  if (tag == "t") {
    // Its blanks count, unlike those between elements.
    for (const pugi::xml_node text : node.children()) {
      if (heading_ > 0 || tables_ > 0) {
        builder_.words(text.value());
      } else {
        builder_.verbatim(text.value());
      }
    }
    return false;
  }
  // Deleted text, properties, and the second form of what is there already.
  if (tag == "del" || tag == "Fallback" || tag == "pPr" || tag == "rPr" || tag == "moveFrom") return false;
  if (tag == "p") enter_paragraph(node);
  if (tag == "tab") builder_.words(" ");
  if (tag == "br" || tag == "cr") {
    if (tables_ > 0 || heading_ > 0) {
      builder_.words(" ");
    } else {
      builder_.end_line();
    }
  }
  if (tag == "softHyphen") builder_.verbatim("\u00AD");
  if (tag == "noBreakHyphen") builder_.verbatim("\u2011");
  if (tag == "tbl" && ++tables_ == 1) {
    builder_.end_block();
    rows_ = {};
  }
  if (tag == "tr") enter_row(node);
  if (tag == "tc" && !std::exchange(first_cell_, false)) builder_.verbatim(" | ");
  return true;
}

void PartWriter::leave(const pugi::xml_node& node) {
  const std::string_view tag = local_name(node);
  if (tag == "p" && tables_ == 0) {
    if (heading_ > 0) builder_.heading(heading_, heading_begin_);
    heading_ = 0;
    builder_.end_line();
    if (!child_named(child_named(node, "pPr"), "numPr")) builder_.end_block();
  }
  if (tag == "tr" && tables_ == 1) {
    if (lead_row_ && rows_.rows.size() == 1) rows_.lead = std::string(builder_.from(rows_.begin));
    builder_.end_line();
  }
  if (tag == "tbl" && --tables_ == 0) leave_table();
}

void PartWriter::leave_table() {
  rows_.end = builder_.size();
  if (rows_.rows.size() > 1) builder_.row_block(std::move(rows_));
  builder_.end_block();
}

using Parts = std::map<std::string, std::string, std::less<>>;

Status write_part(const Parts& parts, std::string_view path, const std::string& name, PartWriter& writer) {
  const auto part = parts.find(path);
  if (part == parts.end()) return {};
  RH_TRY(const XmlDocument xml, XmlDocument::parse(part->second, name));
  writer.write(xml.root());
  return {};
}

void read_core(const XmlDocument& core, Document& document) {
  core.each([&](const pugi::xml_node& node) {
    const std::string_view tag = local_name(node);
    if (tag == "title" && document.title.empty()) document.title = node.child_value();
    if (tag == "creator" && document.author.empty()) document.author = node.child_value();
    if (tag == "created" && document.date.empty()) document.date = iso_date(node.child_value());
  });
}

}  // namespace

Result<Document> read_docx(std::string name, std::string_view bytes) {
  Document document;
  document.name = std::move(name);
  document.kind = DocumentKind::kDocx;
  Package package(bytes, document.name);
  Parts parts;
  RH_TRY_STATUS(package.each(
      [](std::string_view path) {
        return path == kBodyPart || path == kStylesPart || path == kFootnotesPart || path == kEndnotesPart ||
               path == kCorePart;
      },
      [&](const std::string& path, std::string part) { parts[path] = std::move(part); }));
  if (!parts.contains(kBodyPart)) {
    return make_error(ErrorKind::kCorrupt, "{} has no {}", document.name, kBodyPart);
  }
  HeadingStyles headings;
  if (const auto part = parts.find(kStylesPart); part != parts.end()) {
    RH_TRY(const XmlDocument styles, XmlDocument::parse(part->second, document.name));
    headings = heading_styles(styles);
  }
  TextBuilder builder;
  for (const std::string_view path : {kBodyPart, kFootnotesPart, kEndnotesPart}) {
    PartWriter writer(builder, headings);
    RH_TRY_STATUS(write_part(parts, path, document.name, writer));
  }
  if (builder.empty()) return make_error(ErrorKind::kNotFound, "{} holds no text", document.name);
  builder.finish(document);
  if (const auto part = parts.find(kCorePart); part != parts.end()) {
    // Who wrote it is worth having, but not worth the text.
    const auto core = XmlDocument::parse(part->second, document.name);
    if (core.ok()) {
      read_core(*core, document);
    } else {
      document.warnings.push_back("its title and author cannot be read: " + core.error().message);
    }
  }
  return document;
}

}  // namespace rhapsode::text
