// An engine whose pages are spread over several devices against the same engine on one. Shards on the CPU:
// the same plans, exchanges and merges as on several GPUs.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/logit_source.h"
#include "engine/memory_fixture.h"
#include "engine/page_difference.h"
#include "engine/passes_fixture.h"
#include "kernels/cuda/cuda_backend.h"
#include "store/host_pages.h"
#include "support/test_models.h"

namespace rhapsode {
namespace {

using engine::ModelRunner;
using engine::RunnerOptions;
using engine::RunnerSource;

std::vector<int32_t> prompt(int tokens, int vocabulary) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < tokens; ++i) prompt.push_back(static_cast<int32_t>((i * 37ll + tokens) % vocabulary));
  return prompt;
}

double difference(std::span<const float> a, std::span<const float> b) {
  double most = a.size() == b.size() ? 0.0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return most;
}

// The largest difference of logits for prompts and some tokens behind each, which both are given alike.
double largest_difference(RunnerSource& expected, RunnerSource& actual, std::span<const int> lengths,
                          int vocabulary) {
  double most = 0;
  for (const int tokens : lengths) {
    expected.reset();
    actual.reset();
    std::vector<int32_t> next = prompt(tokens, vocabulary);
    for (int step = 0; step < 6; ++step) {
      const auto a = expected.evaluate(next);
      const auto b = actual.evaluate(next);
      EXPECT_TRUE(a.ok() && b.ok());
      if (!a.ok() || !b.ok()) return INFINITY;
      most = std::max(most, difference(*a, *b));
      next = {static_cast<int32_t>(std::max_element(a->begin(), a->end()) - a->begin())};
    }
  }
  return most;
}

int devices_used(RunnerSource& source) {
  std::set<int> used;
  for (int i = 0; i < source.sequence().pages(); ++i) used.insert(source.sequence().page(i)->device);
  return static_cast<int>(used.size());
}

struct ModelCase {
  const char* model;
  kernels::KvType kv;
  double bound;  // of logits
};

class ShardedModel : public ::testing::TestWithParam<ModelCase> {};

TEST_P(ShardedModel, LogitsAreThoseOfOneDevice) {
  RH_REQUIRE_TINY_MODEL(path, GetParam().model);
  RunnerOptions options;
  options.model = path;
  options.kv_type = GetParam().kv;
  options.threads = 4;
  constexpr int kLengths[] = {1, 63, 430};
  const auto one = ModelRunner::open(options).value();
  const auto expected = RunnerSource::make(*one, 440, 48).value();
  for (const int devices : {2, 3}) {
    options.devices = devices;
    const auto several = ModelRunner::open(options).value();
    // The pool holds not much more than the longest prompt, so its pages lie on every device.
    const auto actual = RunnerSource::make(*several, 440, 48).value();
    EXPECT_LE(largest_difference(*expected, *actual, kLengths, one->tokenizer().size()), GetParam().bound);
    EXPECT_EQ(devices_used(*actual), devices);
  }
}

using kernels::KvType;
// Pages of narrow types round what the merge has left slightly different once more.
INSTANTIATE_TEST_SUITE_P(Models, ShardedModel,
                         ::testing::Values(ModelCase{"llama-f32", KvType::kF32, 1e-4},
                                           ModelCase{"qwen2-f32", KvType::kF16, 2e-2},
                                           ModelCase{"llama-yarn", KvType::kF32, 1e-4},
                                           ModelCase{"gemma3-f32", KvType::kF32, 1e-3},
                                           ModelCase{"qwen3-f32", KvType::kBF16, 1e-1}),
                         [](const auto& test) {
                           std::string name = test.param.model;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Quantised weights are multiplied by 8-bit activations, where the last bit of a sum may move a whole step,
// and logits by what numerics classes differ; on float32 copies of the same weights it is parity's matter
// (tests/parity).
TEST(ShardedModel, AModelOfMillionsPredictsAsOnOneDevice) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  RunnerOptions options;
  options.model = path;
  options.kv_type = KvType::kF32;
  options.threads = 2;
  constexpr int kLengths[] = {200};
  const auto one = ModelRunner::open(options).value();
  options.devices = 2;
  const auto two = ModelRunner::open(options).value();
  const auto expected = RunnerSource::make(*one, 210, 48).value();
  const auto actual = RunnerSource::make(*two, 210, 48).value();
  EXPECT_LE(largest_difference(*expected, *actual, kLengths, one->tokenizer().size()), 1.0);
  EXPECT_EQ(devices_used(*actual), 2);
}

// Passages, each on one device, and where attention goes among them.
struct Place {
  const char* name;
  Device device = Device::kCpu;
  int devices = 1;
  std::vector<int> gpus;
  double bound = 1e-3;  // of mass; products on a GPU are of 10 bits here, of which some round the other way
};
void PrintTo(const Place& place, std::ostream* out) {
  *out << place.name;
}

class ShardedPasses : public PassesFixture, public ::testing::WithParamInterface<Place> {
 protected:
  void SetUp() override {
    if (GetParam().device != Device::kCuda) return;
    const std::string& reason = kernels::cuda::why_no_device();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
  void adjust(RunnerOptions& options) const override {
    options.device = GetParam().device;
    if (!sharded_) return;
    options.devices = GetParam().devices;
    options.gpus = GetParam().gpus;
  }
  bool sharded_ = true;
  struct Read {
    std::vector<recall::Encoded> passages;
    recall::AttentionMass mass;
    std::vector<int> homes;
  };
  static std::vector<recall::PassageTokens> passages() {
    std::vector<recall::PassageTokens> all(7);
    for (size_t p = 0; p < all.size(); ++p) {
      for (int i = 0; i < 70 + 23 * static_cast<int>(p); ++i) {
        all[p].tokens.push_back(20 + (static_cast<int>(p) * 31 + i * 37) % 200);
      }
      all[p].text_tokens = static_cast<int>(all[p].tokens.size());
    }
    return all;
  }
  Read read(bool sharded) {
    sharded_ = sharded;
    open(/*deterministic=*/false);
    const std::vector<recall::PassageTokens> texts = passages();
    Read read;
    read.passages = encoder_->encode(texts, /*index_only=*/false).value();
    recall::PassBatch batch;
    batch.mass = true;
    for (const int rows : {5, 1}) {
      kernels::SequencePlan sequence;
      sequence.row_begin = batch.plan.rows();
      sequence.row_count = rows;
      recall::add_references(*encoder_->prefix_pages(), prefix_tokens(), 0, sequence.references);
      int32_t shift = prefix_tokens();
      for (size_t p = 0; p < texts.size(); ++p) {
        const auto tokens = static_cast<int>(texts[p].tokens.size());
        recall::add_references(read.passages[p].pages, tokens, shift, sequence.references);
        shift += tokens;
      }
      sequence.references[2].mask &= 0xffff'0f0f'ffff'00ff;
      for (int row = 0; row < rows; ++row) {
        batch.tokens.push_back(30 + row);
        batch.plan.positions.push_back(shift + row);
        batch.plan.writes.push_back({});
      }
      batch.plan.sequences.push_back(std::move(sequence));
    }
    read.mass = passes_->attention_mass(batch).value();
    for (const recall::Encoded& passage : read.passages) {
      read.homes.push_back(passage.pages.front()->device);
      for (const store::PagePin& page : passage.pages) EXPECT_EQ(page->device, read.homes.back());
    }
    return read;
  }
};
INSTANTIATE_TEST_SUITE_P(Places, ShardedPasses,
                         ::testing::Values(Place{"cpu_2", Device::kCpu, 2, {}},
                                           Place{"cpu_3", Device::kCpu, 3, {}},
                                           Place{"one_gpu_2", Device::kCuda, 2, {0, 0}, 1e-2},
                                           Place{"one_gpu_3", Device::kCuda, 3, {0, 0, 0}, 1e-2}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(ShardedPasses, PassagesAreWholeSpreadAndAttendedToAsOnOneDevice) {
  RH_REQUIRE_TINY_MODEL(path, "qwen2-f32");
  Read several = read(/*sharded=*/true);
  std::vector<std::vector<std::byte>> kept;
  const std::vector<recall::PassageTokens> texts = passages();
  for (size_t p = 0; p < texts.size(); ++p) {
    kept.push_back(store::encode_pinned_kv(several.passages[p].pages, KvType::kF32,
                                           static_cast<int>(texts[p].tokens.size()))
                       .value());
  }
  const std::set<int> homes(several.homes.begin(), several.homes.end());
  EXPECT_EQ(static_cast<int>(homes.size()), GetParam().devices);
  const recall::AttentionMass mass = several.mass;
  several.passages.clear();

  const Read one = read(/*sharded=*/false);
  ASSERT_EQ(mass.size(), one.mass.size());
  for (size_t s = 0; s < mass.size(); ++s) {
    ASSERT_EQ(mass[s].size(), one.mass[s].size());
    double sum = 0;
    for (size_t i = 0; i < mass[s].size(); ++i) {
      ASSERT_NEAR(mass[s][i], one.mass[s][i], GetParam().bound * std::max(1.0, one.mass[s][i]))
          << s << ' ' << i;
      sum += mass[s][i];
    }
    EXPECT_GT(sum, 1.0);
  }
  for (size_t p = 0; p < texts.size(); ++p) {
    const auto tokens = static_cast<int>(texts[p].tokens.size());
    const std::vector<store::PagePin> pages =
        passes_->take_pages(static_cast<int>(one.passages[p].pages.size())).value();
    ASSERT_TRUE(store::decode_pinned_kv(kept[p], pages, tokens).ok());
    EXPECT_LT(engine::page_difference(runner_->kv_shape(), one.passages[p].pages, pages, tokens).value(),
              1e-2 * GetParam().bound);
  }
}

// A small memory and a conversation, asked the same on one device and on several.
class ShardedMemory : public MemoryTest, public ::testing::WithParamInterface<int> {
 protected:
  std::unique_ptr<Engine> on(int devices) {
    EngineOptions options;
    options.model = test::tiny_model_path(tiny_model());
    options.threads = 2;
    options.device = Device::kCpu;
    options.devices = devices;
    options.kv_type = KvStorage::kF32;
    options.kv_cap_bytes = 64 << 20;
    options.cache_folder = folder_ / "home";
    auto engine = Engine::open(options);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return std::move(engine).value();
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, ShardedMemory, ::testing::Values(2, 3));

TEST_P(ShardedMemory, AnswersAreThoseOfOneDevice) {
  for (const char* word : {"lantern", "harbour", "ledger", "orchard", "violin", "quarry"}) {
    write(std::string(word) + ".txt", paragraphs(60, word));
  }
  std::vector<std::vector<Answer>> answers;
  for (const int devices : {1, GetParam()}) {
    engine_ = on(devices);
    fs::remove_all(folder_ / "memory");
    auto memory = open();
    EXPECT_GT(add(*memory).passages, 8);
    auto& of_devices = answers.emplace_back();
    for (const ReadPolicy policy :
         {ReadPolicy::kFull, ReadPolicy::kPrefix, ReadPolicy::kReuse, ReadPolicy::kBlend}) {
      AskOptions asking = this->asking("Which ledger stands in the hall of the harbour house?", policy);
      asking.cite = true;
      asking.max_tokens = 12;
      of_devices.push_back(ask(*memory, asking));
    }
  }
  for (size_t i = 0; i < answers[0].size(); ++i) {
    const Answer& one = answers[0][i];
    const Answer& several = answers[1][i];
    SCOPED_TRACE(i);
    EXPECT_EQ(one.text, several.text);
    ASSERT_EQ(one.passages.size(), several.passages.size());
    for (size_t p = 0; p < one.passages.size(); ++p) {
      EXPECT_EQ(one.passages[p].passage.id, several.passages[p].passage.id);
    }
    EXPECT_EQ(one.citations.size(), several.citations.size());
  }
}

TEST(ShardedEngine, SaysHowManyDevicesThereCanBe) {
  RH_REQUIRE_TINY_MODEL(path, kTinyModel);
  EngineOptions options;
  options.model = path;
  options.device = Device::kCpu;
  for (const int devices : {0, -2, 65}) {
    options.devices = devices;
    const auto engine = Engine::open(options);
    ASSERT_FALSE(engine.ok());
    EXPECT_EQ(engine.error().kind, ErrorKind::kInvalidArgument);
  }
  options.devices = 3;
  options.kv_cap_bytes = 1;
  const auto small = Engine::open(options);
  ASSERT_FALSE(small.ok());
  EXPECT_EQ(small.error().kind, ErrorKind::kTooLarge);
  EXPECT_NE(small.error().message.find("every device"), std::string::npos);
}

}  // namespace
}  // namespace rhapsode
