// Writes what finding works on, for find_bench: the codes of a memory and the whitened states of questions.
//
//   dump_routing_states MODEL.gguf ROUTING.rhw MEMORY QUESTIONS.txt OUT
//
// OUT.codes: magic, d, code bytes, passages; for each passage its content and chunks (int32 each); all codes
// one behind the other. OUT.questions: magic, d, questions; for each question its tokens (int32), their
// weights (IDF in this memory) and vectors (float). Little-endian. Errors end the program with a sentence.
#include <cstdio>
#include <fstream>
#include <iostream>

#include "engine/engine_passes.h"
#include "engine/runner_options.h"
#include "find_corpus.h"
#include "index/whitening.h"
#include "io/file.h"
#include "recall/encoder.h"
#include "recall/router.h"
#include "store/catalog.h"

namespace {

using namespace rhapsode;  // NOLINT(google-build-using-namespace)

struct Paths {
  std::string model, whitening, memory, questions, out;
};

Status dump_codes(const store::Catalog& catalog, const index::Whitening& whitening, const std::string& out) {
  RH_TRY(const std::vector<int64_t> ids, catalog.visible_passages({}));
  RH_TRY(const std::vector<store::CodeView> codes, catalog.codes(ids));
  RH_TRY(const std::vector<store::PassageRow> rows, catalog.passages(ids, {}));
  bench::FindCorpus corpus;
  corpus.dimensions = whitening.dimensions();
  const auto code_bytes = static_cast<size_t>(whitening.code_bytes());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (codes[i].bytes.size() != static_cast<size_t>(codes[i].chunks) * code_bytes) {
      return make_error(ErrorKind::kInvalidArgument, "the codes of {} are another model's", rows[i].source);
    }
    corpus.passages.push_back({static_cast<int32_t>(rows[i].content), codes[i].chunks});
    const auto* words = reinterpret_cast<const uint64_t*>(codes[i].bytes.data());
    corpus.codes.insert(corpus.codes.end(), words, words + codes[i].bytes.size() / sizeof(uint64_t));
  }
  bench::save_corpus(corpus, out + ".codes");
  std::cerr << corpus.passages.size() << " passages, " << corpus.chunks() << " chunks\n";
  return {};
}

Status dump_questions(recall::Router& router, const store::Catalog& catalog, const Paths& paths) {
  std::vector<index::QuestionVectors> questions;
  std::ifstream lines(paths.questions);
  size_t tokens = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    recall::Route route;
    RH_TRY(index::QuestionVectors vectors, router.question_vectors(catalog, line, route));
    tokens += vectors.weights.size();
    questions.push_back(std::move(vectors));
  }
  bench::save_questions(questions, paths.out + ".questions");
  std::cerr << questions.size() << " questions, " << tokens << " tokens\n";
  return {};
}

Status dump(const Paths& paths) {
  EngineOptions options;
  options.model = paths.model;
  options.threads = 2;
  RH_TRY(engine::RunnerOptions runner_options, engine::runner_options(options));
  RH_TRY(const auto runner, engine::ModelRunner::open(runner_options));
  RH_TRY(const auto pool, store::PagePool::create(runner->kv_shape(), 512ull << 20));
  Tracer tracer;
  engine::Scheduler scheduler(*runner, *pool, tracer, {512, 250, true});
  engine::EnginePasses passes(*runner, scheduler);
  RH_TRY(const auto chat, text::ChatTemplate::load(runner->tokenizer()));
  store::CatalogOptions catalog_options;
  catalog_options.folder = paths.memory;
  catalog_options.read_only = true;
  RH_TRY(const auto catalog, store::Catalog::open(catalog_options));
  RH_TRY(const auto instruction, catalog->setting("instruction"));
  RH_TRY(const recall::PromptFrame frame,
         recall::PromptFrame::make(runner->shared_tokenizer(), chat, instruction.value_or("")));
  RH_TRY(const index::Whitening whitening, index::Whitening::load(paths.whitening));
  RH_TRY_STATUS(dump_codes(*catalog, whitening, paths.out));
  recall::Encoder encoder(passes, frame);
  recall::Finder finder({});
  recall::Router router(encoder, frame, whitening, finder);
  return dump_questions(router, *catalog, paths);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::cerr << "usage: dump_routing_states MODEL.gguf ROUTING.rhw MEMORY QUESTIONS.txt OUT\n";
    return 2;
  }
  const rhapsode::Status status = dump({argv[1], argv[2], argv[3], argv[4], argv[5]});
  if (!status.ok()) std::cerr << status.error().message << "\n";
  return status.ok() ? 0 : 1;
}
