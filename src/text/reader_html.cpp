#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "text/dates.h"
#include "text/extractors.h"
#include "text/html_tree.h"
#include "text/text_builder.h"
#include "text/text_scan.h"

namespace rhapsode::text {
namespace {

constexpr size_t kMainMinimumBytes = 500;  // a main element with less text must hold a quarter of the page's

bool is_any(GumboTag tag, std::initializer_list<GumboTag> tags) {
  return std::find(tags.begin(), tags.end(), tag) != tags.end();
}

bool is_block(GumboTag tag) {
  return is_any(
      tag, {GUMBO_TAG_P,        GUMBO_TAG_DIV,        GUMBO_TAG_SECTION, GUMBO_TAG_ARTICLE, GUMBO_TAG_MAIN,
            GUMBO_TAG_ASIDE,    GUMBO_TAG_BLOCKQUOTE, GUMBO_TAG_FIGURE,  GUMBO_TAG_UL,      GUMBO_TAG_OL,
            GUMBO_TAG_DL,       GUMBO_TAG_TABLE,      GUMBO_TAG_HEADER,  GUMBO_TAG_FOOTER,  GUMBO_TAG_ADDRESS,
            GUMBO_TAG_FIELDSET, GUMBO_TAG_DETAILS,    GUMBO_TAG_CENTER,  GUMBO_TAG_FORM,    GUMBO_TAG_HR,
            GUMBO_TAG_PRE,      GUMBO_TAG_LISTING,    GUMBO_TAG_XMP,     GUMBO_TAG_NAV});
}

bool is_line(GumboTag tag) {
  return is_any(tag, {GUMBO_TAG_LI, GUMBO_TAG_DT, GUMBO_TAG_DD, GUMBO_TAG_TR, GUMBO_TAG_CAPTION,
                      GUMBO_TAG_FIGCAPTION, GUMBO_TAG_SUMMARY, GUMBO_TAG_LEGEND});
}

int heading_level(GumboTag tag) {
  return tag >= GUMBO_TAG_H1 && tag <= GUMBO_TAG_H6
             ? static_cast<int>(tag) - static_cast<int>(GUMBO_TAG_H1) + 1
             : 0;
}

// Never text that a reader of the page sees.
bool is_invisible(const GumboNode& node) {
  if (is_any(tag_of(node),
             {GUMBO_TAG_SCRIPT, GUMBO_TAG_STYLE, GUMBO_TAG_NOSCRIPT, GUMBO_TAG_TEMPLATE, GUMBO_TAG_HEAD,
              GUMBO_TAG_IFRAME, GUMBO_TAG_OBJECT, GUMBO_TAG_EMBED, GUMBO_TAG_BUTTON, GUMBO_TAG_SELECT,
              GUMBO_TAG_TEXTAREA, GUMBO_TAG_SVG, GUMBO_TAG_CANVAS, GUMBO_TAG_AUDIO, GUMBO_TAG_VIDEO})) {
    return true;
  }
  if (node.type != GUMBO_NODE_ELEMENT) return node.type == GUMBO_NODE_TEMPLATE;
  if (has_attribute(node, "hidden") || attribute(node, "aria-hidden") == "true") return true;
  if (has_class(node, "headerlink")) return true;  // the "¶" that documentation tools put behind headings
  std::string style(attribute(node, "style"));
  std::erase_if(style, [](char c) { return c == ' '; });
  return style.find("display:none") != std::string::npos;
}

// How much of a page counts as its text: all that is visible; without menus; also without what surrounds the
// text on every page of a site.
enum class Keep : uint8_t { kAll, kNoMenus, kNoFrame };

bool is_boilerplate(const GumboNode& node, Keep keep) {
  if (keep == Keep::kAll) return false;
  const std::string_view role = attribute(node, "role");
  if (tag_of(node) == GUMBO_TAG_NAV || role == "navigation" || role == "search") return true;
  if (keep == Keep::kNoMenus) return false;
  return is_any(tag_of(node), {GUMBO_TAG_HEADER, GUMBO_TAG_FOOTER, GUMBO_TAG_ASIDE}) || role == "banner" ||
         role == "contentinfo";
}

bool is_text(const GumboNode& node) {
  return node.type == GUMBO_NODE_TEXT || node.type == GUMBO_NODE_WHITESPACE || node.type == GUMBO_NODE_CDATA;
}

// Bytes of visible text, white space apart.
size_t text_bytes(const GumboNode& root, Keep keep) {
  size_t bytes = 0;
  walk_html(
      root,
      [&](const GumboNode& node) {
        if (is_text(node)) {
          const std::string_view text = node.v.text.text;
          bytes += static_cast<size_t>(std::count_if(
              text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) > ' '; }));
        }
        return !is_invisible(node) && (&node == &root || !is_boilerplate(node, keep));
      },
      [](const GumboNode&) {});
  return bytes;
}

// A table of data: rows of several cells and no table inside; others only lay out the page.
bool is_data_table(const GumboNode& table) {
  bool nested = false;
  bool several = false;
  size_t cells = 0;
  walk_html(
      table,
      [&](const GumboNode& node) {
        const GumboTag tag = tag_of(node);
        if (tag == GUMBO_TAG_TABLE && &node != &table) nested = true;
        if (tag == GUMBO_TAG_TR) cells = 0;
        if (is_any(tag, {GUMBO_TAG_TD, GUMBO_TAG_TH}) && ++cells > 1) several = true;
        return !nested;
      },
      [](const GumboNode&) {});
  return several && !nested;
}

// Walks the chosen part of a page and writes what its elements mean.
class PageWriter {
 public:
  PageWriter(TextBuilder& builder, const GumboNode& root, Keep keep)
      : builder_(builder), root_(root), keep_(keep) {}

  void write() {
    walk_html(
        root_, [this](const GumboNode& node) { return enter(node); },
        [this](const GumboNode& node) { leave(node); });
    builder_.end_block();
  }

 private:
  struct List {
    bool ordered = false;
    int next = 1;
  };
  bool enter(const GumboNode& node);
  void leave(const GumboNode& node);
  void text(std::string_view text);
  void enter_item();
  void enter_cell();
  void end_row();
  bool is_left_out(const GumboNode& node) const {
    return is_invisible(node) || (&node != &root_ && is_boilerplate(node, keep_));
  }

  TextBuilder& builder_;
  const GumboNode& root_;
  const Keep keep_;
  std::vector<List> lists_;
  size_t heading_begin_ = 0;
  const GumboNode* pre_ = nullptr;  // the outermost
  size_t pre_begin_ = 0;
  const GumboNode* table_ = nullptr;  // of data, being written
  RowBlock rows_;
  bool row_open_ = false;    // rows_ has the row's begin
  bool header_row_ = false;  // only th cells so far
};

void PageWriter::text(std::string_view text) {
  if (pre_ != nullptr) return builder_.verbatim(text);
  builder_.words(text);
}

void PageWriter::enter_item() {
  builder_.end_line();
  builder_.start(BreakStrength::kLine);
  const size_t depth = std::min<size_t>(lists_.size(), 9);
  if (depth > 1) builder_.verbatim(std::string(2 * (depth - 1), ' '));
  if (!lists_.empty() && lists_.back().ordered) {
    builder_.verbatim(std::to_string(lists_.back().next++) + ". ");
  } else {
    builder_.verbatim("- ");
  }
}

void PageWriter::enter_cell() {
  if (row_open_) return builder_.verbatim(" | ");
  rows_.rows.push_back(builder_.start(BreakStrength::kLine));
  if (rows_.rows.size() == 1) rows_.begin = rows_.rows.front();
  row_open_ = true;
  header_row_ = true;
}

void PageWriter::end_row() {
  if (row_open_ && header_row_ && rows_.rows.size() == 1)
    rows_.lead = std::string(builder_.from(rows_.begin));
  row_open_ = false;
  builder_.end_line();
}

bool PageWriter::enter(const GumboNode& node) {
  if (is_text(node)) {
    text(node.v.text.text);
    return false;
  }
  if (is_left_out(node)) return false;
  const GumboTag tag = tag_of(node);
  if (table_ != nullptr) {  // inside a row everything is one line
    if (is_any(tag, {GUMBO_TAG_TD, GUMBO_TAG_TH})) {
      enter_cell();
      if (tag == GUMBO_TAG_TD) header_row_ = false;
    } else if (is_block(tag) || is_line(tag) || tag == GUMBO_TAG_BR) {
      text(" ");
    }
    return true;
  }
  if (pre_ != nullptr) {
    if (tag == GUMBO_TAG_BR) builder_.verbatim("\n");
    return true;
  }
  const bool inner_list = !lists_.empty() && is_any(tag, {GUMBO_TAG_UL, GUMBO_TAG_OL});
  if ((is_block(tag) && !inner_list) || heading_level(tag) > 0) builder_.end_block();
  if (is_line(tag) || tag == GUMBO_TAG_BR) builder_.end_line();
  if (heading_level(tag) > 0) heading_begin_ = builder_.start(BreakStrength::kSection);
  if (is_any(tag, {GUMBO_TAG_UL, GUMBO_TAG_OL})) {
    builder_.end_line();
    lists_.push_back({.ordered = tag == GUMBO_TAG_OL, .next = 1});
  }
  if (tag == GUMBO_TAG_LI) enter_item();
  if (tag == GUMBO_TAG_TABLE && is_data_table(node)) {
    table_ = &node;
    rows_ = {};
  }
  if (is_any(tag, {GUMBO_TAG_PRE, GUMBO_TAG_LISTING, GUMBO_TAG_XMP})) {
    pre_ = &node;
    pre_begin_ = builder_.start(BreakStrength::kBlock);
  }
  return true;
}

void PageWriter::leave(const GumboNode& node) {
  if (node.type != GUMBO_NODE_ELEMENT || is_left_out(node)) return;
  const GumboTag tag = tag_of(node);
  if (table_ != nullptr && &node != table_) {
    if (tag == GUMBO_TAG_TR) end_row();
    if (tag == GUMBO_TAG_CAPTION) builder_.end_line();
    return;
  }
  if (&node == table_) {
    table_ = nullptr;
    rows_.end = builder_.size();
    if (rows_.rows.size() > 1) builder_.row_block(std::move(rows_));
  }
  if (pre_ != nullptr && &node != pre_) return;
  if (&node == pre_) {
    pre_ = nullptr;
    RowBlock block{.begin = pre_begin_, .end = builder_.size(), .lead = {}, .rows = {pre_begin_}};
    const std::string_view lines = builder_.from(pre_begin_);
    for (size_t at = lines.find('\n'); at != std::string_view::npos; at = lines.find('\n', at + 1)) {
      if (at + 1 < lines.size()) block.rows.push_back(pre_begin_ + at + 1);
    }
    if (block.rows.size() > 1) builder_.row_block(std::move(block));
  }
  if (const int level = heading_level(tag); level > 0) builder_.heading(level, heading_begin_);
  if (is_any(tag, {GUMBO_TAG_UL, GUMBO_TAG_OL}) && !lists_.empty()) lists_.pop_back();
  if (is_block(tag) || heading_level(tag) > 0) {
    builder_.end_line();
    const bool inner_list = !lists_.empty() && is_any(tag, {GUMBO_TAG_UL, GUMBO_TAG_OL});
    if (!inner_list) builder_.end_block();
  }
  if (is_line(tag)) builder_.end_line();
}

// Title, author and date from the head; the first main or article element.
struct PageFacts {
  std::string title;
  std::string author;
  std::string date;
  const GumboNode* body = nullptr;
  const GumboNode* main = nullptr;
  const GumboNode* article = nullptr;
  int articles = 0;

  void meet(const GumboNode& node);
  void meet_meta(const GumboNode& node);
};

void PageFacts::meet_meta(const GumboNode& node) {
  std::string key(attribute(node, "name"));
  if (key.empty()) key = attribute(node, "property");
  key = ascii_lower(key);
  const std::string value = one_line(attribute(node, "content"));
  if (author.empty() && (key == "author" || key == "dc.creator" || key == "citation_author")) author = value;
  const bool dated = key == "article:published_time" || key == "date" || key == "dc.date" ||
                     key == "dcterms.created" || key == "citation_publication_date" || key == "datepublished";
  if (date.empty() && dated) date = iso_date(value);
  if (title.empty() && (key == "og:title" || key == "dc.title")) title = value;
}

void PageFacts::meet(const GumboNode& node) {
  const GumboTag tag = tag_of(node);
  if (tag == GUMBO_TAG_META) meet_meta(node);
  if (tag == GUMBO_TAG_BODY) body = &node;
  if (main == nullptr && (tag == GUMBO_TAG_MAIN || attribute(node, "role") == "main")) main = &node;
  if (tag == GUMBO_TAG_ARTICLE && ++articles == 1) article = &node;
  if (tag == GUMBO_TAG_TIME && date.empty() && has_attribute(node, "pubdate")) {
    date = iso_date(attribute(node, "datetime"));
  }
  if (tag == GUMBO_TAG_TITLE && node.v.element.tag_namespace == GUMBO_NAMESPACE_HTML) {
    std::string own;
    for (unsigned i = 0; i < children_of(node).length; ++i) {
      const auto& child = *static_cast<const GumboNode*>(children_of(node).data[i]);
      if (is_text(child)) own += child.v.text.text;
    }
    own = one_line(own);
    if (!own.empty()) title = std::move(own);
  }
}

// The part to read: a main element, a lone article, else the body, each only if it holds enough.
std::pair<const GumboNode*, Keep> chosen_part(const PageFacts& facts, const GumboNode& root) {
  const GumboNode& body = facts.body != nullptr ? *facts.body : root;
  const size_t whole = text_bytes(body, Keep::kNoFrame);
  for (const GumboNode* part : {facts.main, facts.articles == 1 ? facts.article : nullptr}) {
    if (part == nullptr) continue;
    const size_t bytes = text_bytes(*part, Keep::kNoMenus);
    if (bytes >= kMainMinimumBytes || (bytes > 0 && bytes * 4 >= whole)) return {part, Keep::kNoMenus};
  }
  return {&body, whole == 0 ? Keep::kAll : Keep::kNoFrame};
}

}  // namespace

Status append_html(std::string_view name, std::string_view html, TextBuilder& builder, Document& about) {
  RH_TRY(const HtmlTree tree, HtmlTree::parse(name, html));
  PageFacts facts;
  walk_html(
      tree.root(),
      [&](const GumboNode& node) {
        facts.meet(node);
        return true;
      },
      [](const GumboNode&) {});
  const auto [part, keep] = chosen_part(facts, tree.root());
  PageWriter(builder, *part, keep).write();
  about.title = std::move(facts.title);
  about.author = std::move(facts.author);
  about.date = std::move(facts.date);
  return {};
}

Result<Document> read_html(std::string name, std::string_view html) {
  Document document;
  document.name = std::move(name);
  document.kind = DocumentKind::kHtml;
  TextBuilder builder;
  RH_TRY_STATUS(append_html(document.name, html, builder, document));
  if (builder.empty()) return make_error(ErrorKind::kNotFound, "{} holds no text", document.name);
  builder.finish(document);
  return document;
}

}  // namespace rhapsode::text
