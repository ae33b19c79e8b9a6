#include "text/html_tree.h"

#include <array>
#include <csetjmp>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

namespace rhapsode::text {
namespace {

constexpr size_t kMostDepth = 512;
constexpr size_t kMostArenaBytes = size_t{192} << 20;
constexpr size_t kBlockBytes = size_t{1} << 20;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Elements without an end, and those that the next of their kind ends: they add no unbounded depth.
bool is_flat(const std::string& tag) {
  static constexpr std::array kFlat = {"area",   "base",  "br",    "col",   "embed",  "hr",    "img",
                                       "input",  "link",  "meta",  "param", "source", "track", "wbr",
                                       "p",      "li",    "tr",    "td",    "th",     "dt",    "dd",
                                       "option", "thead", "tbody", "tfoot", "html",   "head",  "body"};
  for (const char* flat : kFlat) {
    if (tag == flat) return true;
  }
  return false;
}

bool is_raw(const std::string& tag) {
  return tag == "script" || tag == "style" || tag == "textarea" || tag == "title";
}

// Behind the '>' of the tag that begins at `at`; quoted values may hold one.
size_t tag_end(std::string_view html, size_t at) {
  char quote = '\0';
  for (; at < html.size(); ++at) {
    const char c = html[at];
    if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if ((c == '"' || c == '\'') && html[at - 1] == '=') {
      quote = c;
    } else if (c == '>') {
      return at + 1;
    }
  }
  return html.size();
}

std::string tag_name(std::string_view html, size_t at) {
  std::string name;
  for (; at < html.size() && name.size() < 32; ++at) {
    const char c = html[at];
    if (!is_letter(c) && !(c >= '0' && c <= '9') && c != '-') break;
    name += (c >= 'A' && c <= 'Z') ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return name;
}

// Behind the text of a script or the like: where its end tag begins.
size_t raw_end(std::string_view html, size_t at, const std::string& tag) {
  for (size_t end = html.find("</", at); end != std::string_view::npos; end = html.find("</", end + 2)) {
    if (tag_name(html, end + 2) == tag) return end;
  }
  return html.size();
}

// How deep the reading of tags stands, and which tags it left out.
struct Nesting {
  size_t most_depth;
  size_t depth = 0;
  std::map<std::string, size_t> open;
  std::map<std::string, size_t> dropped;

  // True: leave this tag out.
  bool drop(const std::string& tag, bool closing) {
    if (closing) {
      if (size_t& count = dropped[tag]; count > 0) return --count, true;
      if (size_t& count = open[tag]; count > 0) --count, --depth;
      return false;
    }
    if (depth >= most_depth) return ++dropped[tag], true;
    ++open[tag];
    ++depth;
    return false;
  }
};

}  // namespace

std::string flattened_html(std::string_view html, size_t most_depth) {
  Nesting nesting{.most_depth = most_depth, .open = {}, .dropped = {}};
  std::string out;
  size_t copied = 0;
  bool changed = false;
  for (size_t at = html.find('<'); at != std::string_view::npos; at = html.find('<', at)) {
    if (html.substr(at).starts_with("<!--")) {
      const size_t end = html.find("-->", at + 4);
      at = end == std::string_view::npos ? html.size() : end + 3;
      continue;
    }
    const bool closing = at + 1 < html.size() && html[at + 1] == '/';
    const std::string tag = tag_name(html, at + (closing ? 2 : 1));
    if (tag.empty() || !is_letter(tag[0])) {
      ++at;
      continue;
    }
    const size_t end = tag_end(html, at + 1);
    if (is_raw(tag)) {
      at = closing ? end : raw_end(html, end, tag);
      continue;
    }
    if (!is_flat(tag) && nesting.drop(tag, closing)) {
      out += html.substr(copied, at - copied);
      copied = end;
      changed = true;
    }
    at = end;
  }
  if (!changed) return {};
  out += html.substr(copied);
  return out;
}

// All of gumbo's memory: nothing is freed before the whole, so that a parse can be given up anywhere.
struct HtmlTree::Arena {
  std::vector<void*> blocks;
  size_t used = kBlockBytes;  // of the last block
  size_t total = 0;
  std::jmp_buf give_up;

  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    for (void* block : blocks) std::free(block);
  }
  void* take(size_t bytes) {
    bytes = (bytes + 15) & ~size_t{15};
    const bool own = bytes > kBlockBytes / 4;
    if (own || used + bytes > kBlockBytes) {
      const size_t wanted = own ? bytes : kBlockBytes;
      void* block = total + wanted > kMostArenaBytes ? nullptr : std::malloc(wanted);
      if (block == nullptr) return nullptr;
      total += wanted;
      if (own) {  // keeps the current block the last one
        blocks.insert(blocks.empty() ? blocks.end() : blocks.end() - 1, block);
        return block;
      }
      blocks.push_back(block);
      used = 0;
    }
    void* memory = static_cast<char*>(blocks.back()) + used;
    used += bytes;
    return memory;
  }
  // Gumbo does not check for failure: the only way out of its C code is a jump back to parse().
  static void* allocate(void* self, size_t bytes) {
    auto* arena = static_cast<Arena*>(self);
    void* memory = arena->take(bytes);
    if (memory == nullptr) std::longjmp(arena->give_up, 1);
    return memory;
  }
  static void release(void*, void*) {}
  // In a function without objects of its own, so that the jump passes over no destructor.
  GumboOutput* parse(const char* html, size_t bytes) {
    GumboOptions options = kGumboDefaultOptions;
    options.allocator = &allocate;
    options.deallocator = &release;
    options.userdata = this;
    options.max_errors = 0;
    return setjmp(give_up) == 0 ? gumbo_parse_with_options(&options, html, bytes) : nullptr;
  }
};

void HtmlTree::Delete::operator()(Arena* arena) const {
  delete arena;
}

Result<HtmlTree> HtmlTree::parse(std::string_view name, std::string_view html) {
  HtmlTree tree;
  tree.html_ = std::make_unique<std::string>(flattened_html(html, kMostDepth));
  const std::string_view page = tree.html_->empty() ? html : *tree.html_;
  tree.arena_.reset(new Arena);
  const GumboOutput* output = tree.arena_->parse(page.data(), page.size());
  if (output == nullptr) {
    return make_error(ErrorKind::kTooLarge, "{}: the page has too many elements (over {} MiB): split it",
                      name, kMostArenaBytes >> 20);
  }
  tree.root_ = output->root;
  return tree;
}

std::string_view attribute(const GumboNode& node, const char* name) {
  if (node.type != GUMBO_NODE_ELEMENT) return {};
  const GumboAttribute* found = gumbo_get_attribute(&node.v.element.attributes, name);
  return found == nullptr ? std::string_view() : std::string_view(found->value);
}

bool has_attribute(const GumboNode& node, const char* name) {
  return node.type == GUMBO_NODE_ELEMENT && gumbo_get_attribute(&node.v.element.attributes, name) != nullptr;
}

bool has_class(const GumboNode& node, std::string_view word) {
  const std::string padded = ' ' + std::string(attribute(node, "class")) + ' ';
  return padded.find(' ' + std::string(word) + ' ') != std::string::npos;
}

GumboTag tag_of(const GumboNode& node) {
  return node.type == GUMBO_NODE_ELEMENT || node.type == GUMBO_NODE_TEMPLATE ? node.v.element.tag
                                                                             : GUMBO_TAG_UNKNOWN;
}

const GumboVector& children_of(const GumboNode& node) {
  static constexpr GumboVector kNone{};
  if (node.type == GUMBO_NODE_DOCUMENT) return node.v.document.children;
  return node.type == GUMBO_NODE_ELEMENT ? node.v.element.children : kNone;
}

}  // namespace rhapsode::text
