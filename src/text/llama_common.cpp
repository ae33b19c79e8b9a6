#include "text/llama_common.h"

#include <json-schema-to-grammar.h>

#include <exception>

#include "base/result.h"
#include "text/library_log.h"

namespace rhapsode::text {

Result<std::string> json_schema_to_gbnf(std::string_view schema) {
  const LibraryLog log;
  try {
    return json_schema_to_grammar(common_json::parse(std::string(schema)), /*force_gbnf=*/true);
  } catch (const std::exception& exception) {
    return make_error(ErrorKind::kInvalidArgument, "the JSON schema cannot become a grammar: {}",
                      exception.what());
  }
}

}  // namespace rhapsode::text
