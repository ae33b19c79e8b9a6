#include "io/batch_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <random>
#include <thread>
#include <vector>

#include "io/file.h"

namespace rhapsode {
namespace {

namespace fs = std::filesystem;

class BatchReaderTest : public testing::TestWithParam<BatchMethod> {
 protected:
  void SetUp() override {
    path_ = fs::temp_directory_path() / ("rhapsode_batch_reader_" + std::to_string(getpid()));
    std::mt19937 random(1);
    for (int i = 0; i < 200'000; ++i) content_.push_back(static_cast<char>(random()));
    ASSERT_TRUE(replace_file(path_, content_).ok());
    auto reader = BatchReader::open(path_, GetParam());
    if (!reader.ok() && reader.error().kind == ErrorKind::kUnsupported)
      GTEST_SKIP() << reader.error().message;
    ASSERT_TRUE(reader.ok());
    reader_ = std::move(*reader);
  }
  void TearDown() override { fs::remove(path_); }

  // Reads at random places, more at a time than a ring holds; whether all bytes are the file's.
  bool random_reads_are_right(uint32_t seed) const {
    std::mt19937 random(seed);
    const size_t count = 3 * BatchReader::kRingReads / 2;
    std::vector<std::vector<std::byte>> buffers(count);
    std::vector<ReadRequest> requests;
    for (auto& buffer : buffers) {
      buffer.resize(random() % 3000);
      requests.push_back({random() % (content_.size() - buffer.size()), buffer});
    }
    if (!reader_->read(requests).ok()) return false;
    for (const ReadRequest& request : requests) {
      const std::string_view read(reinterpret_cast<const char*>(request.bytes.data()), request.bytes.size());
      if (read != std::string_view(content_).substr(request.offset, read.size())) return false;
    }
    return true;
  }

  fs::path path_;
  std::string content_;
  std::unique_ptr<BatchReader> reader_;
};

TEST_P(BatchReaderTest, ReadsWhatIsThere) {
  EXPECT_EQ(reader_->method(), GetParam());
  EXPECT_TRUE(reader_->read({}).ok());
  EXPECT_TRUE(random_reads_are_right(1));
}

TEST_P(BatchReaderTest, ManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::vector<char> right(4, 0);
  for (uint32_t t = 0; t < right.size(); ++t) {
    threads.emplace_back(
        [this, t, &right] { right[t] = random_reads_are_right(t + 10) && random_reads_are_right(t + 20); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<char>(4, 1));
}

TEST_P(BatchReaderTest, AReadBehindTheEndIsAnErrorWithThePath) {
  std::vector<std::byte> bytes(100);
  const ReadRequest request{content_.size() - 50, bytes};
  const Status status = reader_->read(std::span(&request, 1));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, ErrorKind::kCorrupt);
  EXPECT_NE(status.error().message.find(path_.string()), std::string::npos);
  EXPECT_TRUE(random_reads_are_right(3));
}

INSTANTIATE_TEST_SUITE_P(Methods, BatchReaderTest, testing::Values(BatchMethod::kUring, BatchMethod::kPread),
                         [](const auto& method) {
                           return method.param == BatchMethod::kUring ? "io_uring" : "pread";
                         });

TEST(BatchReader, TakesWhatWorksAndNamesWhatIsMissing) {
  const auto missing = BatchReader::open("/nowhere/at/all");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().kind, ErrorKind::kNotFound);
  EXPECT_NE(missing.error().message.find("/nowhere/at/all"), std::string::npos);
}

}  // namespace
}  // namespace rhapsode
