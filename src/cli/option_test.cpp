// The registry: parsing, printing and ranges of every option.
#include "cli/option.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cli/command.h"
#include "cli/help.h"
#include "model/catalogue.h"

namespace rhapsode::cli {
namespace {

std::string refusal(const char* option, const std::vector<std::string>& values) {
  Settings settings;
  const Status status = parse_option(*find_option(option), std::string("--") + option, values, settings);
  return status.ok() ? "" : status.error().message;
}

Settings parsed(const char* option, const std::vector<std::string>& values) {
  Settings settings;
  const Status status = parse_option(*find_option(option), std::string("--") + option, values, settings);
  EXPECT_TRUE(status.ok()) << status.error().message;
  return settings;
}

TEST(OptionTable, NamesKeysAndLettersAreUnique) {
  std::set<std::string> keys;
  std::set<char> letters;
  for (const OptionSpec& spec : option_specs()) {
    EXPECT_TRUE(keys.insert(spec.key()).second) << spec.name;
    EXPECT_FALSE(std::string_view(spec.name).starts_with("no-")) << spec.name;
    if (spec.letter) {
      EXPECT_TRUE(letters.insert(spec.letter).second) << spec.letter;
    }
    EXPECT_TRUE(spec.commands & kConfig) << spec.name << " is missing from `config`";
    EXPECT_NE(std::string_view(spec.help).back(), '.') << spec.name;
  }
}

TEST(OptionTable, WhatIsSpecialToMemoriesHasAnExample) {
  std::string examples;
  for (const Command& command : commands()) examples += std::string(" ") + command.examples + "\n";
  std::replace(examples.begin(), examples.end(), '\n', ' ');
  for (const OptionSpec& spec : option_specs()) {
    const OptionGroup group = spec.group;
    if (group != OptionGroup::kAdding && group != OptionGroup::kSelection && group != OptionGroup::kReading &&
        group != OptionGroup::kMemory && group != OptionGroup::kConversation)
      continue;
    EXPECT_NE(examples.find(" " + spec.flag() + " "), std::string::npos) << spec.flag();
  }
}

TEST(OptionTable, EveryOptionOfACommandIsInItsHelp) {
  TerminalTraits traits;
  const Terminal terminal(traits);
  for (const Command& command : commands()) {
    if (command.id == kConfig) continue;  // takes every option, only to show what it comes to
    const std::string help = command_help(command, terminal);
    for (const OptionSpec& spec : option_specs()) {
      if (!(spec.commands & command.id)) continue;
      EXPECT_NE(help.find(std::string("-") + spec.name), std::string::npos)
          << command.name << " " << spec.name;
    }
  }
}

TEST(OptionTable, EveryOptionWritesAMemberOfItsOwn) {
  Settings settings;
  std::set<const void*> members;
  for (const OptionSpec& spec : option_specs()) {
    const void* member =
        std::visit([](const auto* pointer) -> const void* { return pointer; }, spec.slot(settings));
    EXPECT_TRUE(members.insert(member).second) << spec.name;
  }
}

TEST(OptionTable, DefaultsAreValidAndReadBack) {
  for (const OptionSpec& spec : option_specs()) {
    const std::string shown = show_option(spec, Settings());
    if (shown.empty()) continue;  // nothing to read back
    Settings settings;
    const Status status = parse_option(spec, spec.flag(), {shown}, settings);
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(show_option(spec, settings), shown) << spec.name;
  }
}

TEST(OptionTable, TheDefaultModelIsTheCatalogues) {
  const auto catalogue = model::Catalogue::load("/nonexistent");
  ASSERT_TRUE(catalogue.ok()) << catalogue.error().message;
  EXPECT_EQ(Settings().model, catalogue->default_model());
}

TEST(OptionTable, SwitchesMatchTheirMembers) {
  Settings settings;
  for (const OptionSpec& spec : option_specs()) {
    EXPECT_EQ(spec.is_switch(), std::holds_alternative<bool*>(spec.slot(settings))) << spec.name;
  }
}

TEST(OptionSpec, NamesDeriveFromOneName) {
  const OptionSpec& top_p = *find_option("top-p");
  EXPECT_EQ(top_p.flag(), "--top-p");
  EXPECT_EQ(top_p.key(), "top_p");
  EXPECT_EQ(top_p.environment(), "RHAPSODE_TOP_P");
  EXPECT_EQ(find_option("prefix-cache")->flag(), "--no-prefix-cache");
}

TEST(ParseOption, Numbers) {
  EXPECT_FLOAT_EQ(parsed("top-p", {"0.25"}).request.sampling.top_p, 0.25f);
  EXPECT_FLOAT_EQ(parsed("temperature", {"1e-1"}).request.sampling.temperature, 0.1f);
  EXPECT_EQ(parsed("top-k", {"+40"}).request.sampling.top_k, 40);
  EXPECT_EQ(parsed("repeat-window", {"-1"}).request.sampling.repetition_window, -1);
  EXPECT_EQ(parsed("seed", {"4294967295"}).request.sampling.seed, 4294967295u);
  EXPECT_EQ(parsed("prefill", {"512,2048"}).bench.prefill_tokens, (std::vector<int>{512, 2048}));
  EXPECT_EQ(parsed("prefill", {"1", "2"}).bench.prefill_tokens, (std::vector<int>{1, 2}));
}

TEST(ParseOption, NumbersOutOfRange) {
  EXPECT_EQ(refusal("top-p", {"1.7"}), "--top-p must lie in (0, 1]; 1.7 given");
  EXPECT_EQ(refusal("top-p", {"0"}), "--top-p must lie in (0, 1]; 0 given");
  EXPECT_EQ(refusal("min-p", {"-0.1"}), "--min-p must lie in [0, 1]; -0.1 given");
  EXPECT_EQ(refusal("max-tokens", {"-1"}), "--max-tokens must be at least 0; -1 given");
  EXPECT_EQ(refusal("max-tokens", {"2147483648"}),
            "--max-tokens must be at most 2147483647; 2147483648 given");
  EXPECT_EQ(refusal("seed", {"4294967296"}), "--seed must lie in [0, 4294967295]; 4294967296 given");
  EXPECT_EQ(refusal("prefill", {"512,0"}), "--prefill must lie in [1, 16777216]; 0 given");
}

TEST(ParseOption, NoNumbers) {
  for (const char* text : {"x", "", "1x", "0x10", "1.5", "99999999999999999999", " 1"}) {
    EXPECT_NE(refusal("top-k", {text}).find("--top-k must be a whole number; "), std::string::npos) << text;
  }
  for (const char* text : {"nan", "inf", "-inf", "1e999", "one", ""}) {
    EXPECT_NE(refusal("temperature", {text}).find("--temperature must be a number; "), std::string::npos)
        << text;
  }
  EXPECT_EQ(refusal("decode", {"0,,5"}), "--decode must be a whole number; an empty text given");
}

TEST(ParseOption, TheLastOfSeveralCounts) {
  EXPECT_EQ(parsed("top-k", {"5", "7"}).request.sampling.top_k, 7);
  EXPECT_EQ(parsed("stop", {"a", "b"}).request.stop, (std::vector<std::string>{"a", "b"}));
}

TEST(ParseOption, Switches) {
  EXPECT_TRUE(parsed("raw", {"yes"}).generate.raw);
  EXPECT_FALSE(parsed("prefix-cache", {"off"}).engine.prefix_cache);
  EXPECT_EQ(refusal("raw", {"maybe"}), "--raw must be true or false; maybe given");
}

TEST(ParseOption, Choices) {
  EXPECT_EQ(parsed("kv-type", {"i8"}).engine.kv_type, KvStorage::kI8);
  EXPECT_EQ(parsed("decode-bounds", {"ball"}).engine.sparse_decode.bounds, KeyBounds::kBall);
  EXPECT_EQ(parsed("decode-budget", {"2048"}).engine.sparse_decode.budget_tokens, 2048);
  EXPECT_EQ(Settings{}.engine.device, Device::kAuto);
  EXPECT_EQ(parsed("device", {"cuda"}).engine.device, Device::kCuda);
  EXPECT_EQ(parsed("device", {"cpu"}).engine.device, Device::kCpu);
  EXPECT_EQ(refusal("device", {"tpu"}), "--device must be one of auto, cpu, cuda; tpu given");
  EXPECT_EQ(Settings{}.engine.devices, 1);
  EXPECT_EQ(parsed("devices", {"2"}).engine.devices, 2);
  EXPECT_EQ(refusal("devices", {"0"}), "--devices must lie in [1, 64]; 0 given");
  EXPECT_EQ(parsed("weights", {"bf16"}).engine.weights, WeightFormat::kBF16);
  EXPECT_EQ(refusal("kv-type", {"int4"}), "--kv-type must be one of f32, f16, bf16, i8; int4 given");
}

TEST(ParseOption, Memories) {
  EXPECT_EQ(parsed("policy", {"prefix"}).memory.ask.policy, ReadPolicy::kPrefix);
  EXPECT_EQ(parsed("order", {"parallel"}).memory.ask.order, ReadOrder::kParallel);
  EXPECT_EQ(refusal("policy", {"mix"}),
            "--policy must be one of auto, full, prefix, reuse, blend, reorder; mix given");
  EXPECT_EQ(parsed("cap", {"20GiB"}).memory.options.disk_cap_bytes, 20ull << 30);
  EXPECT_FALSE(Settings().memory.options.disk_cap_bytes.has_value());
  EXPECT_EQ(refusal("cap", {"much"}), "--cap must be a size such as 512MiB, 2GiB or 4096; much given");
  EXPECT_EQ(parsed("stored-kv", {"i8"}).memory.options.stored_kv, KvStorage::kI8);
  EXPECT_EQ(refusal("stored-kv", {"i4"}), "--stored-kv must be one of f32, f16, bf16, i8; i4 given");
  EXPECT_DOUBLE_EQ(parsed("sample", {"0.25"}).memory.verify.sample, 0.25);
  EXPECT_EQ(refusal("sample", {"2"}), "--sample must lie in [0, 1]; 2 given");
  EXPECT_EQ(parsed("read", {"3,1"}).memory.read, (std::vector<int>{3, 1}));
  EXPECT_EQ(parsed("tag", {"a", "b c"}).memory.filter.tags, (std::vector<std::string>{"a", "b c"}));
  EXPECT_FALSE(parsed("ignore", {"false"}).memory.add.ignore_files);
  EXPECT_EQ(find_option("ignore")->flag(), "--no-ignore");
}

TEST(ParseOption, Adapters) {
  const auto adapters = parsed("adapter", {"a.gguf", "b.gguf:0.5", "dir:x/c.gguf", "d:-2"}).engine.adapters;
  ASSERT_EQ(adapters.size(), 4u);
  EXPECT_EQ(adapters[0].path, "a.gguf");
  EXPECT_FLOAT_EQ(adapters[0].scale, 1.0f);
  EXPECT_EQ(adapters[1].path, "b.gguf");
  EXPECT_FLOAT_EQ(adapters[1].scale, 0.5f);
  EXPECT_EQ(adapters[2].path, "dir:x/c.gguf");
  EXPECT_FLOAT_EQ(adapters[3].scale, -2.0f);
  EXPECT_EQ(refusal("adapter", {":0.5"}), "--adapter must be PATH or PATH:SCALE; :0.5 given");
}

TEST(ParseOption, EmptyStopStringsAreRefused) {
  EXPECT_EQ(refusal("stop", {""}), "--stop must not be empty; an empty text given");
}

struct SizeCase {
  const char* text;
  uint64_t bytes;
};

TEST(ParseSize, Units) {
  for (const SizeCase& c : {SizeCase{"0", 0},
                            {"4096", 4096},
                            {"4096B", 4096},
                            {"1K", 1024},
                            {"1kB", 1000},
                            {"512MiB", 512ull << 20},
                            {"2GiB", 2ull << 30},
                            {"2G", 2ull << 30},
                            {"2GB", 2000000000},
                            {"1.5GiB", 3ull << 29},
                            {"1.5 GiB", 3ull << 29},
                            {"1TiB", 1ull << 40}}) {
    const auto size = parse_size(c.text);
    ASSERT_TRUE(size.ok()) << c.text;
    EXPECT_EQ(*size, c.bytes) << c.text;
  }
}

TEST(ParseSize, Nonsense) {
  for (const char* text : {"", "GiB", "2x", "2GiBx", "-1", "1..5", "1e9", "2 G B", "two"}) {
    EXPECT_FALSE(parse_size(text).ok()) << text;
  }
  EXPECT_EQ(refusal("kv-cap", {"9000000TiB"}), "--kv-cap must be below 8 EiB; 9000000TiB given");
  EXPECT_EQ(refusal("kv-cap", {"2x"}), "--kv-cap must be a size such as 512MiB, 2GiB or 4096; 2x given");
}

TEST(ShowSize, IsExact) {
  for (const uint64_t bytes : {0ull, 1ull, 1024ull, 1025ull, 3ull << 29, 2ull << 30, 1ull << 50}) {
    EXPECT_EQ(*parse_size(show_size(bytes)), bytes);
  }
  EXPECT_EQ(show_size(2ull << 30), "2GiB");
}

}  // namespace
}  // namespace rhapsode::cli
