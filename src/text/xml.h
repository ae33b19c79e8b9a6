// XML parts of office files, parsed by pugixml within bounds. No external or declared entities, no recursion.
//
// Ownership: nodes are valid while their XmlDocument lives. Threads: one at a time. Errors: kCorrupt, and
// kTooLarge where the tree would take more than 160 MiB.
#pragma once

#include <functional>
#include <memory>
#include <pugixml.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace rhapsode::text {

class XmlDocument {
 public:
  // `name` stands in errors.
  static Result<XmlDocument> parse(std::string_view bytes, const std::string& name);

  pugi::xml_node root() const { return *document_; }
  // Every element in document order.
  void each(const std::function<void(const pugi::xml_node&)>& on_node) const;
  // The first element of that name, whatever its prefix.
  pugi::xml_node find(std::string_view name) const;

 private:
  std::unique_ptr<pugi::xml_document> document_;
};

// "p" of <w:p>.
std::string_view local_name(const pugi::xml_node& node);
// The child of that local name, a null node if there is none.
pugi::xml_node child_named(const pugi::xml_node& node, std::string_view name);
// The value of an attribute by its local name: "val" of w:val="x".
std::string_view local_attribute(const pugi::xml_node& node, std::string_view name);

// The next node in document order behind `node`, inside `root`; goes into children where `down`. A null node:
// the end. `on_leave` is called for every element that is left on the way, `node` as well.
pugi::xml_node next_node(pugi::xml_node node, const pugi::xml_node& root, bool down,
                         const std::function<void(const pugi::xml_node&)>& on_leave);

}  // namespace rhapsode::text
