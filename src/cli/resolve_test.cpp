// Where values come from: precedence, rhapsode.toml and its errors, the environment.
#include "cli/resolve.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/command.h"

namespace rhapsode::cli {
namespace {

namespace fs = std::filesystem;

class ConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "rhapsode-config-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path write(const std::string& text) {
    const fs::path path = folder_ / "rhapsode.toml";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  // The error of reading `text`, with the file's path cut off.
  std::string refusal(const std::string& text) {
    const auto file = read_config(write(text));
    if (file.ok()) return "";
    const std::string& message = file.error().message;
    const std::string prefix = (folder_ / "rhapsode.toml").string() + ":";
    EXPECT_TRUE(message.starts_with(prefix)) << message;
    return message.substr(std::min(prefix.size(), message.size()));
  }

  OptionSources sources(const std::string& toml) {
    OptionSources sources;
    sources.environment = [this](const std::string& name) -> std::optional<std::string> {
      const auto found = environment_.find(name);
      return found == environment_.end() ? std::nullopt : std::optional(found->second);
    };
    auto file = read_config(write(toml));
    EXPECT_TRUE(file.ok()) << file.error().message;
    if (file.ok()) sources.file = std::move(file).value();
    return sources;
  }

  static ResolvedOption origin_of(const Resolved& resolved, std::string_view name) {
    for (const ResolvedOption& option : resolved.options) {
      if (name == option.option->name) return option;
    }
    ADD_FAILURE() << name << " was not resolved";
    return {};
  }

  fs::path folder_;
  std::map<std::string, std::string> environment_;
};

TEST_F(ConfigTest, FlagThenEnvironmentThenFileThenDefault) {
  OptionSources all = sources("top_k = 1\ntop_p = 0.1\nmin_p = 0.1\n");
  environment_ = {{"RHAPSODE_TOP_K", "2"}, {"RHAPSODE_TOP_P", "0.2"}};
  all.flags[find_option("top-k")] = {"3"};
  const auto resolved = resolve(all, kGenerate, "generate");
  ASSERT_TRUE(resolved.ok()) << resolved.error().message;
  const SamplingOptions& sampling = resolved->settings.request.sampling;
  EXPECT_EQ(sampling.top_k, 3);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.2f);
  EXPECT_FLOAT_EQ(sampling.min_p, 0.1f);
  EXPECT_EQ(resolved->settings.request.max_tokens, Request().max_tokens);

  EXPECT_EQ(origin_of(*resolved, "top-k").where, "--top-k");
  EXPECT_EQ(origin_of(*resolved, "top-p").where, "RHAPSODE_TOP_P");
  EXPECT_EQ(origin_of(*resolved, "min-p").where, (folder_ / "rhapsode.toml").string() + ":3");
  EXPECT_EQ(origin_of(*resolved, "max-tokens").origin, Origin::kDefault);
}

TEST_F(ConfigTest, SectionsHoldForTheirCommandAndWin) {
  const OptionSources all = sources("threads = 1\n[bench]\nthreads = 2\nruns = 9\n");
  EXPECT_EQ(resolve(all, kGenerate, "generate")->settings.engine.threads, 1);
  EXPECT_EQ(resolve(all, kBench, "bench")->settings.engine.threads, 2);
  EXPECT_EQ(resolve(all, kBench, "bench")->settings.bench.runs, 9);
}

TEST_F(ConfigTest, ValuesOfEveryKind) {
  const OptionSources all = sources(
      "raw = true\nkv_cap = \"2GiB\"\nstop = [\"a\", \"b, c\"]\nadapter = \"x.gguf:2\"\ntemperature = 1\n"
      "kv_type = 'i8'\n[bench]\nprefill = [1, 2]\nkv_cap = 4096\n");
  const Settings generate = resolve(all, kGenerate, "generate")->settings;
  EXPECT_TRUE(generate.generate.raw);
  EXPECT_EQ(generate.engine.kv_cap_bytes, 2ull << 30);
  EXPECT_EQ(generate.request.stop, (std::vector<std::string>{"a", "b, c"}));
  EXPECT_FLOAT_EQ(generate.engine.adapters.at(0).scale, 2.0f);
  EXPECT_FLOAT_EQ(generate.request.sampling.temperature, 1.0f);
  EXPECT_EQ(generate.engine.kv_type, KvStorage::kI8);
  const Settings bench = resolve(all, kBench, "bench")->settings;
  EXPECT_EQ(bench.bench.prefill_tokens, (std::vector<int>{1, 2}));
  EXPECT_EQ(bench.engine.kv_cap_bytes, 4096u);
}

TEST_F(ConfigTest, UnknownKeysNameLineAndNearest) {  // G6
  EXPECT_EQ(refusal("# comment\n\ntemprature = 1\n"),
            "3: unknown key 'temprature'; did you mean 'temperature'?");
  EXPECT_EQ(refusal("xyzzy = 1\n"), "1: unknown key 'xyzzy'");
  EXPECT_EQ(refusal("[generat]\n"), "1: unknown section 'generat'; did you mean 'generate'?");
  EXPECT_EQ(refusal("[generate]\nmax_token = 1\n"),
            "2: unknown key of [generate] 'max_token'; did you mean 'max_tokens'?");
  EXPECT_EQ(refusal("config = \"x\"\n"), "1: unknown key 'config'");
}

TEST_F(ConfigTest, ValuesOfTheWrongKind) {
  EXPECT_EQ(refusal("top_k = 1.5\n"), "1: top_k must be a whole number; a number is given");
  EXPECT_EQ(refusal("top_k = \"5\"\n"), "1: top_k must be a whole number; a text is given");
  EXPECT_EQ(refusal("raw = 1\n"), "1: raw must be true or false; a whole number is given");
  EXPECT_EQ(refusal("model = [\"a\"]\n"), "1: model must be a text; a list is given");
  EXPECT_EQ(refusal("stop = [1]\n"), "1: stop must be a text or a list of texts; a list is given");
  EXPECT_EQ(refusal("seed = 2026-11-30\n"), "1: seed must be a whole number; a date or time is given");
  EXPECT_EQ(refusal("[generate]\n[generate.top_k]\n"), "2: top_k must be a whole number; a section is given");
}

TEST_F(ConfigTest, BrokenFilesNameTheLine) {
  EXPECT_TRUE(refusal("a = 1\nb = = 2\n").starts_with("2: not valid TOML: "));
  EXPECT_TRUE(refusal("top_k = 1\ntop_k = 2\n").starts_with("2: not valid TOML: "));
  EXPECT_TRUE(refusal(std::string("top_k = \"\xff\xfe\"\n")).starts_with("1: not valid TOML: "));
}

TEST_F(ConfigTest, UnreadableFiles) {
  EXPECT_EQ(read_config(folder_ / "absent.toml").error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(read_config(folder_).error().kind, ErrorKind::kInvalidArgument);
  const fs::path large = write(std::string((1 << 20) + 1, '#'));
  EXPECT_EQ(read_config(large).error().kind, ErrorKind::kTooLarge);
}

TEST_F(ConfigTest, ErrorsNameTheirSource) {
  OptionSources all = sources("top_p = 3\n");
  EXPECT_EQ(resolve(all, kGenerate, "generate").error().message,
            (folder_ / "rhapsode.toml").string() + ":1: top_p must lie in (0, 1]; 3 given");
  environment_ = {{"RHAPSODE_TOP_P", "2"}};
  EXPECT_EQ(resolve(all, kGenerate, "generate").error().message,
            "RHAPSODE_TOP_P must lie in (0, 1]; 2 given");
  // What another command's option says does not matter here.
  EXPECT_TRUE(resolve(all, kInspect, "inspect").ok());
}

TEST_F(ConfigTest, RepeatableVariablesHoldAValueALine) {
  const OptionSources all = sources("");
  environment_ = {{"RHAPSODE_STOP", "one\ntwo words\n\n"}, {"RHAPSODE_SYSTEM", "line 1\nline 2"}};
  const auto resolved = resolve(all, kGenerate, "generate");
  EXPECT_EQ(resolved->settings.request.stop, (std::vector<std::string>{"one", "two words"}));
  EXPECT_EQ(resolved->settings.generate.system, "line 1\nline 2");
}

TEST_F(ConfigTest, TheConfigOptionNamesTheFile) {
  OptionSources all;
  all.environment = [](const std::string&) { return std::optional<std::string>(); };
  all.flags[find_option("config")] = {(folder_ / "absent.toml").string()};
  EXPECT_EQ(find_config(all).error().kind, ErrorKind::kNotFound);  // a file that is asked for must be there
  all.flags[find_option("config")] = {write("seed = 5\n").string()};
  const auto file = find_config(all);
  ASSERT_TRUE(file.ok() && file->has_value());
  EXPECT_EQ((*file)->entries.size(), 1u);
}

}  // namespace
}  // namespace rhapsode::cli
