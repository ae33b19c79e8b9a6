// Documents to passages: text, places, tokens and words of what is to be stored and encoded.
//
// Ownership: refers to the prompt frame and the tokenizer. Threads: const, any number at once: cutting costs
// more than anything else that the host does for a document (some microseconds a token). Errors: the reader's
// and the tokenizer's, for this document only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "recall/prompt_frame.h"
#include "rhapsode/memory_options.h"
#include "store/catalog_types.h"
#include "text/passage.h"
#include "text/reader.h"

namespace rhapsode::recall {

// A document cut into passages, with their tokens.
struct CutDocument {
  store::SourceRecord source;
  store::ContentRecord content;
  std::vector<PassageTokens> passages;
  std::vector<std::string> warnings;
};

class DocumentCutter {
 public:
  DocumentCutter(const text::Tokenizer& tokenizer, const PromptFrame& frame)
      : tokenizer_(tokenizer), frame_(frame) {}

  Result<CutDocument> cut(text::Document document) const;
  // The bytes of a source as the reader of `read_as`'s format reads them: headers hold that name, and where
  // passages end depends on the header's length. The source is described as the options say.
  Result<CutDocument> cut_source(text::SourceBytes source, const std::string& read_as,
                                 const AddOptions& options) const;
  // Of its passages, header included, only how many tokens they have.
  Result<std::vector<int>> count_source(text::SourceBytes source, const std::string& read_as) const;

 private:
  Result<std::vector<text::Passage>> passages_of(const text::Document& document) const;

  const text::Tokenizer& tokenizer_;
  const PromptFrame& frame_;
};

}  // namespace rhapsode::recall
