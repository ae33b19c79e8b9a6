// How fast many tokens of real text become routable: `add --index-only`, timed, then a question.
//
//   rhapsode_many_tokens MODEL.gguf TEXTS... --work FOLDER [--tokens 20] [--kv] [--question "..."]
//                        [--instant] [--routing FILE.rhw] [--threads N] [--device cpu|cuda] [--index-chunks
//                        N]
//
// The texts (files and folders, as `rhapsode add` reads them) are taken once as they are. When --tokens
// (millions) asks for more, further rounds are documents of the same paragraphs in an order drawn by a seed:
// how often is printed, and no result may be read as one over so much different text. --instant leaves the
// model out, chunks get random states and KV of zeros: what is timed then is all that the host does. FOLDER
// gets the texts and the memory, and must not exist. Errors end the program with a sentence.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iostream>
#include <numeric>
#include <optional>
#include <random>

#include "base/clock.h"
#include "base/system.h"
#include "engine/memory_impl.h"
#include "rhapsode/memory.h"
#include "text/readers.h"

namespace {

using namespace rhapsode;  // NOLINT(google-build-using-namespace)
namespace fs = std::filesystem;

constexpr double kBytesPerToken = 4.2;  // of English with some code; what add() counts is printed
constexpr size_t kDocumentBytes = 20'000;

struct Setting {
  std::string model;
  std::vector<std::string> texts;
  fs::path work;
  fs::path routing;
  std::string device = "auto";
  std::string question = "Which PEP describes the style guide for Python code?";
  double million_tokens = 20;
  int threads = usable_cores();
  std::optional<uint64_t> index_chunks;
  bool kv = false;
  bool instant = false;
};

double seconds_since(int64_t begin_ns) {
  return static_cast<double>(now_ns() - begin_ns) * 1e-9;
}

// Documents in a folder, made of paragraphs of the texts.
class Corpus {
 public:
  explicit Corpus(fs::path folder) : folder_(std::move(folder)) {}

  Status gather(const std::vector<std::string>& texts) {
    text::ScanCallbacks callbacks;
    callbacks.on_source = [this](text::SourceBytes source) {
      const std::string name = source.name;
      if (auto document = text::read_document(name, std::move(source.bytes)); document.ok()) {
        take(document->text);
      }
      return true;
    };
    return text::scan_sources(texts, {}, callbacks);
  }

  Status write(uint64_t bytes) {
    if (paragraphs_.empty()) return make_error(ErrorKind::kNotFound, "the texts hold no paragraph");
    uint64_t written = 0;
    for (; written < bytes; ++rounds_) {
      if (rounds_ > 0) shuffle(static_cast<uint32_t>(rounds_));
      for (size_t i = 0; i < order_.size() && written < bytes;) {
        std::string text;
        for (; i < order_.size() && text.size() < kDocumentBytes; ++i)
          text += paragraphs_[order_[i]] + "\n\n";
        written += text.size();
        RH_TRY_STATUS(put(text));
      }
    }
    fmt::print("texts: {:.1f} MB of paragraphs, {} documents of {:.1f} MB in {} rounds{}\n",
               static_cast<double>(bytes_) * 1e-6, documents_, static_cast<double>(written) * 1e-6, rounds_,
               rounds_ > 1 ? " (the same paragraphs shuffled from the second on)" : "");
    return {};
  }

 private:
  void take(std::string_view text) {
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find("\n\n", begin), text.size());
      if (end > begin) {
        order_.push_back(paragraphs_.size());
        paragraphs_.emplace_back(text.substr(begin, end - begin));
        bytes_ += end - begin;
      }
      begin = end + 2;
    }
  }

  void shuffle(uint32_t seed) {
    std::mt19937 random(seed);
    for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random() % i]);
  }

  Status put(const std::string& text) {
    const fs::path folder = folder_ / fmt::format("part{:03}", documents_ / 500);
    std::error_code failure;
    fs::create_directories(folder, failure);
    std::ofstream file(folder / fmt::format("text{:06}.txt", documents_++), std::ios::binary);
    file << text;
    file.close();
    if (file.good()) return {};
    return make_error(ErrorKind::kNoSpace, "the texts cannot be written to {}", folder.string());
  }

  fs::path folder_;
  std::vector<std::string> paragraphs_;
  std::vector<size_t> order_;
  uint64_t bytes_ = 0;
  int rounds_ = 0;
  int documents_ = 0;
};

// Answers passes at once, without a model.
class InstantPasses final : public recall::PassRunner {
 public:
  static Result<std::unique_ptr<InstantPasses>> make(const std::string& model) {
    std::unique_ptr<InstantPasses> passes(new InstantPasses);
    RH_TRY(const model::GgufFile file, model::GgufFile::open(model));
    RH_TRY(passes->architecture_, model::parse_architecture(file));
    passes->shape_ = passes->architecture_.kv_shape(kernels::KvType::kF16);
    RH_TRY(passes->tokenizer_, text::Tokenizer::load(model));
    RH_TRY(passes->pool_, store::PagePool::create(passes->shape_, uint64_t{8} << 30));
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    passes->states_.resize(4096 + 64);
    for (float& state : passes->states_) state = normal(random);
    return passes;
  }

  Status run(const recall::PassBatch& batch, model::PassGoal, const OnResult& on_result) override {
    const auto width = static_cast<size_t>(architecture_.embedding);
    results_.resize(batch.pools.size() * width);
    for (size_t i = 0; i < batch.pools.size(); ++i) {
      std::copy_n(states_.begin() + static_cast<std::ptrdiff_t>(random_() % 64), width,
                  results_.begin() + static_cast<std::ptrdiff_t>(i * width));
    }
    on_result(results_);
    return {};
  }
  Result<recall::AttentionMass> attention_mass(const recall::PassBatch&) override {
    return make_error(ErrorKind::kUnsupported, "there is no model to attend");
  }
  Result<std::vector<store::PagePin>> take_pages(std::span<const int> counts) override {
    std::vector<store::PagePin> pages;
    for (int left = std::accumulate(counts.begin(), counts.end(), 0); left > 0; --left) {
      pages.push_back(pool_->allocate());
      if (!pages.back()) return make_error(ErrorKind::kNoSpace, "the pages are used up");
    }
    return pages;
  }
  int most_rows() const override { return 8192; }
  const model::Architecture& architecture() const override { return architecture_; }
  const kernels::KvShape& kv_shape() const override { return shape_; }
  const text::Tokenizer& tokenizer() const override { return *tokenizer_; }
  std::shared_ptr<const text::Tokenizer> shared_tokenizer() const { return tokenizer_; }

 private:
  InstantPasses() = default;
  model::Architecture architecture_;
  kernels::KvShape shape_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::unique_ptr<store::PagePool> pool_;
  std::vector<float> states_;
  std::vector<float> results_;
  std::mt19937 random_{2};
};

AddOptions add_options(const Setting& setting) {
  AddOptions options;
  options.paths = {(setting.work / "texts").string()};
  options.index_only = !setting.kv;
  return options;
}

void print(const AddPlan& plan, double seconds) {
  fmt::print("plan: {} sources, {} tokens in {:.1f} s: {:.0f} tokens/s\n", plan.sources_new, plan.tokens,
             seconds, static_cast<double>(plan.tokens) / seconds);
}

void print(const AddReport& report, double seconds) {
  fmt::print("add: {} sources, {} passages, {} tokens in {:.1f} s: {:.0f} tokens/s; {:.2f} GB of KV\n",
             report.added, report.passages, report.encoded_tokens, seconds,
             static_cast<double>(report.encoded_tokens) / seconds,
             static_cast<double>(report.kv_bytes) * 1e-9);
  for (size_t i = 0; i < std::min<size_t>(report.failed.size(), 3); ++i) {
    fmt::print("failed: {}: {}\n", report.failed[i].source, report.failed[i].reason);
  }
}

Status add_instantly(const Setting& setting) {
  RH_TRY(const auto passes, InstantPasses::make(setting.model));
  store::CatalogOptions catalog_options;
  catalog_options.folder = setting.work / "memory";
  catalog_options.create = true;
  RH_TRY(const auto catalog, store::Catalog::open(catalog_options));
  RH_TRY(const auto chat, text::ChatTemplate::load(passes->tokenizer()));
  RH_TRY(const recall::PromptFrame frame,
         recall::PromptFrame::make(passes->shared_tokenizer(), chat, built_in_instruction()));
  RH_TRY(const index::Whitening whitening, index::Whitening::load(setting.routing));
  recall::Encoder encoder(*passes, frame);
  recall::Ingester ingester(*catalog, *passes, encoder, frame, whitening,
                            {"0", kernels::KvType::kF16, 0, setting.threads});
  int64_t begin = now_ns();
  RH_TRY(const AddPlan plan, ingester.plan(add_options(setting)));
  print(plan, seconds_since(begin));
  begin = now_ns();
  RH_TRY(const AddReport report, ingester.add(add_options(setting), plan.tokens));
  print(report, seconds_since(begin));
  return {};
}

Status add_really(const Setting& setting) {
  EngineOptions options;
  options.model = setting.model;
  options.threads = setting.threads;
  if (setting.device != "auto") options.device = setting.device == "cuda" ? Device::kCuda : Device::kCpu;
  RH_TRY(const auto engine, Engine::open(options));
  MemoryOptions memory_options;
  memory_options.folder = setting.work / "memory";
  memory_options.create = true;
  memory_options.whitening = setting.routing;
  memory_options.index_chunks = setting.index_chunks;
  RH_TRY(const auto memory, Memory::open(*engine, memory_options));
  int64_t begin = now_ns();
  RH_TRY(const AddPlan plan, memory->plan(add_options(setting)));
  print(plan, seconds_since(begin));
  begin = now_ns();
  RH_TRY(const AddReport report, memory->add(add_options(setting)));
  const double whole = seconds_since(begin);
  print(report, report.seconds);
  fmt::print("add and index: {:.1f} s: {:.0f} tokens/s\n", whole,
             static_cast<double>(report.encoded_tokens) / whole);
  for (int run = 0; run < 3; ++run) {
    begin = now_ns();
    RH_TRY(const auto found, memory->search(setting.question, {}));
    fmt::print("search {}: {:.1f} ms, {} passages, the best of {}\n", run + 1, seconds_since(begin) * 1e3,
               found.size(), found.empty() ? "nothing" : found.front().passage.source);
  }
  RH_TRY(const MemoryStats stats, memory->stats());
  fmt::print(
      "stats: {} sources, {} passages, {} tokens; texts {:.0f} MB, codes {:.0f} MB, catalog {:.0f} MB\n",
      stats.sources, stats.passages, stats.tokens, static_cast<double>(stats.text_bytes) * 1e-6,
      static_cast<double>(stats.code_bytes) * 1e-6, static_cast<double>(stats.catalog_bytes) * 1e-6);
  return {};
}

Status run(const Setting& setting) {
  std::error_code failure;
  if (!fs::create_directories(setting.work, failure)) {
    return make_error(ErrorKind::kInvalidArgument, "{} cannot be made, or is there already",
                      setting.work.string());
  }
  Corpus corpus(setting.work / "texts");
  RH_TRY_STATUS(corpus.gather(setting.texts));
  RH_TRY_STATUS(corpus.write(static_cast<uint64_t>(setting.million_tokens * 1e6 * kBytesPerToken)));
  return setting.instant ? add_instantly(setting) : add_really(setting);
}

}  // namespace

int main(int argc, char** argv) {
  Setting setting;
  CLI::App app("How fast many tokens become routable");
  app.add_option("model", setting.model, "a GGUF file")->required();
  app.add_option("texts", setting.texts, "files and folders")->required();
  app.add_option("--work", setting.work, "a folder to make")->required();
  app.add_option("--routing", setting.routing, "the model's routing file");
  app.add_option("--tokens", setting.million_tokens, "millions")->check(CLI::Range(0.01, 1e4));
  app.add_option("--question", setting.question);
  app.add_option("--threads", setting.threads);
  app.add_option("--device", setting.device)->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--index-chunks", setting.index_chunks, "as of `rhapsode add`; 0: codes are scanned");
  app.add_flag("--kv", setting.kv, "KV as well, not only routing keys");
  app.add_flag("--instant", setting.instant, "without the model: what the host does");
  CLI11_PARSE(app, argc, argv);
  const Status status = run(setting);
  if (!status.ok()) std::cerr << status.error().message << "\n";
  return status.ok() ? 0 : 1;
}
