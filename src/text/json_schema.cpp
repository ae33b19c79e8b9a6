#include "text/json_schema.h"

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "text/llama_common.h"
#include "text/utf8_gate.h"

namespace rhapsode::text {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr int kMaxDepth = 100;

Error refuse(std::string_view pattern, std::string_view why) {
  return make_error(ErrorKind::kInvalidArgument, "JSON schema: the pattern '{}' cannot be enforced: {}",
                    pattern, why);
}

// The length of an escape that both regular expressions and grammars know; 0 for others, such as \d.
size_t escape_length(std::string_view text, bool in_class) {
  if (text.size() < 2) return 0;
  if (std::string_view("trn\\[]-").find(text[1]) != std::string_view::npos) return 2;
  if (!in_class && std::string_view("^$.()|{}*+?").find(text[1]) != std::string_view::npos) return 2;
  const size_t digits = text[1] == 'x' ? 2 : text[1] == 'u' ? 4 : 0;
  if (digits == 0 || text.size() < 2 + digits) return 0;
  const std::string_view hex = text.substr(2, digits);
  return hex.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos ? 2 + digits : 0;
}

Status check_pattern(std::string_view pattern) {
  if (pattern.size() < 2 || pattern.front() != '^' || pattern.back() != '$') {
    return refuse(pattern, "it must begin with '^' and end with '$'");
  }
  const std::string_view body = pattern.substr(1, pattern.size() - 2);
  bool in_class = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (c == '\\') {
      const size_t length = escape_length(body.substr(i), in_class);
      if (length == 0) return refuse(pattern, "write classes out, such as [0-9] for \\d");
      i += length - 1;
    } else if (in_class) {
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
    } else if (c == '^' || c == '$' || c == ']' || c == '}') {
      return refuse(pattern, fmt::format("'{}' inside it", c));
    } else if (c == '{') {
      const size_t end = body.find('}', i);
      const std::string_view bounds = body.substr(i + 1, end == std::string_view::npos ? 0 : end - i - 1);
      if (bounds.empty() || bounds == "," ||
          bounds.find_first_not_of("0123456789,") != std::string_view::npos ||
          bounds.find(',') != bounds.rfind(',')) {
        return refuse(pattern, "a repetition is {n}, {n,} or {n,m}");
      }
      i = end;
    } else if (c == '(' && body.substr(i, 2) == "(?" && body.substr(i, 3) != "(?:") {
      return refuse(pattern, "groups other than (...) and (?:...)");
    }
  }
  return {};
}

Status check_node(const nlohmann::json& node, int depth) {
  if (depth > kMaxDepth)
    return make_error(ErrorKind::kTooLarge, "the JSON schema nests deeper than {}", kMaxDepth);
  if (!node.is_structured()) return {};
  if (node.is_object()) {
    const auto pattern = node.find("pattern");
    if (pattern != node.end() && pattern->is_string())
      RH_TRY_STATUS(check_pattern(pattern->get_ref<const std::string&>()));
  }
  for (const nlohmann::json& child : node) RH_TRY_STATUS(check_node(child, depth + 1));
  return {};
}

}  // namespace

Result<std::string> grammar_of_json_schema(std::string_view schema) {
  if (schema.size() > kMaxBytes) {
    return make_error(ErrorKind::kTooLarge, "the JSON schema has {} bytes; at most {} are supported",
                      schema.size(), kMaxBytes);
  }
  const nlohmann::json root = nlohmann::json::parse(schema, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded())
    return make_error(ErrorKind::kInvalidArgument, "the JSON schema is not valid JSON");
  RH_TRY_STATUS(check_node(root, 0));
  return json_schema_to_gbnf(schema);
}

}  // namespace rhapsode::text
