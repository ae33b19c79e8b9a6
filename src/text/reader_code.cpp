#include "rhapsode/result.h"
#include "text/code_outline.h"
#include "text/readers.h"

namespace rhapsode::text {

Result<Document> read_code(std::string name, std::string text) {
  Document document;
  document.name = std::move(name);
  document.kind = DocumentKind::kCode;
  document.text = std::move(text);
  const CodeLanguage* language = find_language(document.name, document.text);
  switch (language ? language->shape : CodeShape::kData) {
    case CodeShape::kBraces:
      outline_braces(*language, document);
      break;
    case CodeShape::kIndent:
      outline_indent(*language, document);
      break;
    case CodeShape::kSql:
      outline_sql(document);
      break;
    case CodeShape::kData:
      outline_data(document);
      break;
  }
  return document;
}

}  // namespace rhapsode::text
