#include "model/package_index.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "base/sha256.h"

namespace rhapsode::model {
namespace {

constexpr uint64_t kMaxPageBytes = 64u << 20;

struct Link {
  std::string file;
  std::string url;
  std::string sha256;
};

// PEP 503: names that differ only in case and in runs of '-', '_' and '.' are one.
std::string normalised(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '-' || c == '_' || c == '.') {
      if (out.empty() || out.back() != '-') out += '-';
    } else {
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return out;
}

// NAME-VERSION-TAGS.whl
bool is_wheel_of(std::string_view file, const PackagePart& part) {
  if (!file.ends_with(".whl")) return false;
  const size_t name_end = file.find('-');
  if (name_end == std::string_view::npos) return false;
  const size_t version_end = file.find('-', name_end + 1);
  if (version_end == std::string_view::npos) return false;
  return normalised(file.substr(0, name_end)) == normalised(part.name) &&
         file.substr(name_end + 1, version_end - name_end - 1) == part.version;
}

std::vector<Link> links_of_json(const std::string& body) {
  std::vector<Link> links;
  const auto page = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!page.is_object() || !page.contains("files") || !page["files"].is_array()) return links;
  const auto text = [](const nlohmann::json& object, const char* key) -> std::string {
    if (!object.is_object()) return "";
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
  };
  for (const auto& file : page["files"]) {
    const std::string hash =
        file.is_object() && file.contains("hashes") ? text(file["hashes"], "sha256") : "";
    links.push_back({text(file, "filename"), text(file, "url"), hash});
  }
  return links;
}

std::string without_entities(std::string text) {
  for (size_t at = text.find("&amp;"); at != std::string::npos; at = text.find("&amp;", at + 1)) {
    text.replace(at, 5, "&");
  }
  return text;
}

// Anchors: <a href="URL#sha256=HEX" ...>FILE</a>
std::vector<Link> links_of_html(const std::string& body) {
  std::vector<Link> links;
  for (size_t at = body.find("<a "); at != std::string::npos; at = body.find("<a ", at + 1)) {
    const size_t close = body.find('>', at);
    const size_t end = body.find("</a>", at);
    if (close == std::string::npos || end == std::string::npos || close > end) break;
    const std::string tag = body.substr(at, close - at);
    const size_t start = tag.find("href=\"");
    const size_t stop = start == std::string::npos ? std::string::npos : tag.find('"', start + 6);
    if (stop == std::string::npos) continue;
    std::string url = without_entities(tag.substr(start + 6, stop - start - 6));
    std::string hash;
    if (const size_t mark = url.find("#sha256="); mark != std::string::npos) {
      hash = url.substr(mark + 8, 64);
      url.resize(mark);
    }
    std::string file = body.substr(close + 1, end - close - 1);
    file.erase(0, file.find_first_not_of(" \t\r\n"));
    file.erase(file.find_last_not_of(" \t\r\n") + 1);
    links.push_back({std::move(file), std::move(url), std::move(hash)});
  }
  return links;
}

}  // namespace

Result<WheelLink> find_wheel_on_page(const HttpDocument& page, const std::string& page_url,
                                     const PackagePart& part) {
  const bool is_json = page.content_type.find("json") != std::string::npos;
  for (const Link& link : is_json ? links_of_json(page.body) : links_of_html(page.body)) {
    if (!is_wheel_of(link.file, part)) continue;
    if (!is_sha256(link.sha256)) {
      return make_error(ErrorKind::kCorrupt, "{} offers {} {} without a SHA-256", shown_url(page_url),
                        part.name, part.version);
    }
    const std::optional<std::string> url = resolve_url(page_url, link.url);
    if (!url) {
      return make_error(ErrorKind::kCorrupt, "{} has a malformed link to {} {}", shown_url(page_url),
                        part.name, part.version);
    }
    return WheelLink{*url, link.sha256};
  }
  return make_error(ErrorKind::kNotFound, "{} has no wheel of {} {}", shown_url(page_url), part.name,
                    part.version);
}

Result<WheelLink> find_wheel(const std::string& index, const PackagePart& part,
                             const std::function<bool()>& keep_going) {
  std::string base = index;
  while (base.ends_with('/')) base.pop_back();
  const std::string page_url = base + "/" + normalised(part.name) + "/";
  HttpRequest request;
  request.url = page_url;
  request.headers = {"Accept: application/vnd.pypi.simple.v1+json, text/html;q=0.5"};
  request.keep_going = keep_going;
  RH_TRY(const HttpDocument page, http_get_document(request, kMaxPageBytes));
  return find_wheel_on_page(page, page_url, part);
}

}  // namespace rhapsode::model
