#include "text/xml.h"

#include <algorithm>

#include "base/text_check.h"

namespace rhapsode::text {
namespace {

constexpr size_t kMostTreeBytes = size_t{160} << 20;
constexpr size_t kNodeBytes = 2 * 64;  // an element and its text
constexpr size_t kAttributeBytes = 48;

std::string_view without_prefix(std::string_view name) {
  const size_t colon = name.find(':');
  return colon == std::string_view::npos ? name : name.substr(colon + 1);
}

size_t estimated_tree_bytes(std::string_view bytes) {
  size_t elements = 0;
  for (size_t i = 0; i + 1 < bytes.size(); ++i) {
    if (bytes[i] == '<' && bytes[i + 1] != '/') ++elements;
  }
  const auto attributes = static_cast<size_t>(std::count(bytes.begin(), bytes.end(), '='));
  return elements * kNodeBytes + attributes * kAttributeBytes;
}

}  // namespace

Result<XmlDocument> XmlDocument::parse(std::string_view bytes, const std::string& name) {
  if (estimated_tree_bytes(bytes) > kMostTreeBytes) {
    return make_error(ErrorKind::kTooLarge, "{} holds too many elements to be read: split it", name);
  }
  XmlDocument xml;
  xml.document_ = std::make_unique<pugi::xml_document>();
  const pugi::xml_parse_result result =
      xml.document_->load_buffer(bytes.data(), bytes.size(), pugi::parse_default | pugi::parse_ws_pcdata);
  if (!result) {
    return make_error(ErrorKind::kCorrupt, "{} is damaged: {} at byte {} of a part", name,
                      shown(result.description(), 100), result.offset);
  }
  return xml;
}

void XmlDocument::each(const std::function<void(const pugi::xml_node&)>& on_node) const {
  for (pugi::xml_node node = root().first_child(); node;
       node = next_node(node, root(), true, [](const pugi::xml_node&) {})) {
    if (node.type() == pugi::node_element) on_node(node);
  }
}

pugi::xml_node XmlDocument::find(std::string_view name) const {
  for (pugi::xml_node node = root().first_child(); node;
       node = next_node(node, root(), true, [](const pugi::xml_node&) {})) {
    if (node.type() == pugi::node_element && local_name(node) == name) return node;
  }
  return {};
}

std::string_view local_name(const pugi::xml_node& node) {
  return without_prefix(node.name());
}

pugi::xml_node child_named(const pugi::xml_node& node, std::string_view name) {
  for (pugi::xml_node child = node.first_child(); child; child = child.next_sibling()) {
    if (local_name(child) == name) return child;
  }
  return {};
}

std::string_view local_attribute(const pugi::xml_node& node, std::string_view name) {
  for (const pugi::xml_attribute attribute : node.attributes()) {
    if (without_prefix(attribute.name()) == name) return attribute.value();
  }
  return {};
}

pugi::xml_node next_node(pugi::xml_node node, const pugi::xml_node& root, bool down,
                         const std::function<void(const pugi::xml_node&)>& on_leave) {
  if (down && node.first_child()) return node.first_child();
  while (node && node != root) {
    on_leave(node);
    if (node.next_sibling()) return node.next_sibling();
    node = node.parent();
  }
  return {};
}

}  // namespace rhapsode::text
