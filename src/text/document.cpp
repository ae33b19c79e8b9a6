#include "text/document.h"

namespace rhapsode::text {

const char* to_string(DocumentKind kind) {
  switch (kind) {
    case DocumentKind::kPlain:
      return "plain";
    case DocumentKind::kMarkdown:
      return "markdown";
    case DocumentKind::kHtml:
      return "html";
    case DocumentKind::kPdf:
      return "pdf";
    case DocumentKind::kCode:
      return "code";
    case DocumentKind::kMessages:
      return "messages";
    case DocumentKind::kTable:
      return "table";
    case DocumentKind::kDocx:
      return "docx";
    case DocumentKind::kEpub:
      return "epub";
    case DocumentKind::kNotebook:
      return "notebook";
  }
  return "plain";
}

}  // namespace rhapsode::text
