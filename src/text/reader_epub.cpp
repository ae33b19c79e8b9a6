#include <algorithm>
#include <map>
#include <pugixml.hpp>
#include <utility>
#include <vector>

#include "base/text_check.h"
#include "text/charset.h"
#include "text/dates.h"
#include "text/extractors.h"
#include "text/file_name.h"
#include "text/packaged_document.h"
#include "text/text_builder.h"
#include "text/xml.h"

namespace rhapsode::text {
namespace {

// "a%20b.xhtml#part" -> "a b.xhtml"
std::string plain_reference(std::string_view reference) {
  reference = reference.substr(0, reference.find('#'));
  std::string out;
  const auto hex = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    const char low = static_cast<char>(c | 0x20);
    return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
  };
  for (size_t i = 0; i < reference.size(); ++i) {
    if (reference[i] == '%' && i + 2 < reference.size() && hex(reference[i + 1]) >= 0 &&
        hex(reference[i + 2]) >= 0) {
      out += static_cast<char>(hex(reference[i + 1]) * 16 + hex(reference[i + 2]));
      i += 2;
    } else {
      out += reference[i];
    }
  }
  return out;
}

// A reference inside the package, from the folder of the file that makes it; '..' is taken back.
std::string resolved(const std::string& folder, const std::string& reference) {
  std::vector<std::string> parts;
  std::string_view rest;
  const std::string joined = reference.starts_with('/') ? reference : folder + reference;
  for (rest = joined; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find('/'));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
    } else if (!part.empty() && part != ".") {
      parts.emplace_back(part);
    }
  }
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : "/") + part;
  return out;
}

struct Book {
  std::string title;
  std::string author;
  std::string date;
  std::vector<std::string> chapters;  // paths in reading order
};

Result<Book> read_book(Package& package, const std::string& name) {
  RH_TRY(const std::string container_bytes, package.part("META-INF/container.xml"));
  RH_TRY(const XmlDocument container, XmlDocument::parse(container_bytes, name));
  const pugi::xml_node root_file = container.find("rootfile");
  const std::string path = plain_reference(root_file.attribute("full-path").value());
  RH_TRY(const std::string package_bytes, package.part(path));
  RH_TRY(const XmlDocument content, XmlDocument::parse(package_bytes, name));
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  Book book;
  std::map<std::string, std::string> items;
  std::vector<std::string> spine;
  content.each([&](const pugi::xml_node& node) {
    const std::string_view tag = local_name(node);
    if (tag == "item") {
      items[node.attribute("id").value()] = resolved(folder, plain_reference(node.attribute("href").value()));
    } else if (tag == "itemref") {
      spine.emplace_back(node.attribute("idref").value());
    } else if (tag == "title" && book.title.empty()) {
      book.title = node.child_value();
    } else if (tag == "creator" && node.child_value()[0] != '\0') {
      book.author += (book.author.empty() ? "" : ", ") + std::string(node.child_value());
    } else if (tag == "date" && book.date.empty()) {
      book.date = iso_date(node.child_value());
    }
  });
  for (const std::string& id : spine) {
    const auto item = items.find(id);
    if (item != items.end()) book.chapters.push_back(item->second);
  }
  return book;
}

}  // namespace

Result<Document> read_epub(std::string name, std::string_view bytes) {
  Document document;
  document.name = std::move(name);
  document.kind = DocumentKind::kEpub;
  Package package(bytes, document.name);
  RH_TRY(Book book, read_book(package, document.name));
  std::map<std::string, std::string> parts;
  for (const std::string& chapter : book.chapters) parts[chapter];
  RH_TRY_STATUS(
      package.each([&](std::string_view path) { return parts.contains(std::string(path)); },
                   [&](const std::string& path, std::string part) { parts[path] = std::move(part); }));
  TextBuilder builder;
  for (const std::string& chapter : book.chapters) {
    std::string& html = parts[chapter];
    const std::string ending = file_ending(chapter);
    if (html.empty()) {
      document.warnings.push_back(fmt::format("chapter {} is missing or empty", shown(chapter)));
      continue;
    }
    if (ending == "svg" || ending == "png" || ending == "jpg" || ending == "jpeg") continue;
    const std::string declared = declared_charset(html);
    RH_TRY(const DecodedText decoded, decode_text(std::move(html), declared));
    html.clear();
    Document about;
    const size_t begin = builder.start_part();
    RH_TRY_STATUS(append_html(document.name, decoded.text, builder, about));
    if (about.title != book.title) builder.name_part(begin, about.title);
  }
  if (builder.empty()) return make_error(ErrorKind::kNotFound, "{} holds no text", document.name);
  builder.finish(document);
  document.title = std::move(book.title);
  document.author = std::move(book.author);
  document.date = std::move(book.date);
  return document;
}

}  // namespace rhapsode::text
