// An HTML page parsed by gumbo within bounds: nesting as deep as browsers keep (512), memory up to a limit.
//
// Ownership: the tree and the page it points into live as long as the HtmlTree, which is move-only. Threads:
// one at a time. Cost: O(page) for sane pages; what would take more ends at a limit.
// Errors: kTooLarge over the memory limit.
#pragma once

#include <gumbo.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace rhapsode::text {

class HtmlTree {
 public:
  // `name` stands in errors. UTF-8.
  static Result<HtmlTree> parse(std::string_view name, std::string_view html);
  const GumboNode& root() const { return *root_; }

 private:
  struct Arena;
  struct Delete {
    void operator()(Arena* arena) const;
  };
  std::unique_ptr<Arena, Delete> arena_;
  std::unique_ptr<std::string> html_;
  const GumboNode* root_ = nullptr;
};

// Value of an attribute; empty: none.
std::string_view attribute(const GumboNode& node, const char* name);
// True if the element has the attribute, with whatever value.
bool has_attribute(const GumboNode& node, const char* name);
// True if a class attribute holds that word.
bool has_class(const GumboNode& node, std::string_view word);
// The tag of an element, GUMBO_TAG_UNKNOWN for anything else.
GumboTag tag_of(const GumboNode& node);
// Children of elements; an empty vector otherwise.
const GumboVector& children_of(const GumboNode& node);

// Calls `on_enter` for every node at and below `root` in document order, and `on_leave` behind its children;
// children are left out when on_enter says false (on_leave follows all the same). Iterative.
template <typename Enter, typename Leave>
void walk_html(const GumboNode& root, const Enter& on_enter, const Leave& on_leave) {
  struct Step {
    const GumboNode* node;
    unsigned next;
    unsigned count;
  };
  std::vector<Step> path;
  const auto enter = [&](const GumboNode& node) {
    path.push_back({&node, 0, on_enter(node) ? children_of(node).length : 0});
  };
  enter(root);
  while (!path.empty()) {
    Step& top = path.back();
    if (top.next == top.count) {
      on_leave(*top.node);
      path.pop_back();
    } else {
      enter(*static_cast<const GumboNode*>(children_of(*top.node).data[top.next++]));
    }
  }
}

// The page without start tags nested deeper than `most_depth`, and without their end tags; empty: nothing is
// nested so deeply. Reads tags only roughly, as far as that is enough to bound the depth.
std::string flattened_html(std::string_view html, size_t most_depth);

}  // namespace rhapsode::text
