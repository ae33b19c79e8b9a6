// Checks the vocabulary of a GGUF file before libllama reads it, because libllama aborts the process on some
// of what a hostile or damaged file may hold (tokens that occur twice), guesses where the file says too
// little (no pre-tokenizer) and accepts kinds of vocabulary that our models never use.
//
// Threads: pure function. Errors: kCorrupt, kUnsupported, with the field named. Cost: one pass over the token
// list.
#pragma once

#include <gguf.h>

#include <filesystem>
#include <string>

#include "base/result.h"

namespace rhapsode::text {

struct VocabularyKind {
  std::string model;          // tokenizer.ggml.model: "gpt2" or "llama"
  std::string pre_tokenizer;  // tokenizer.ggml.pre; empty where the model has none
};

// `path` only names the file in errors.
Result<VocabularyKind> check_vocabulary(const gguf_context* file, const std::filesystem::path& path);

}  // namespace rhapsode::text
