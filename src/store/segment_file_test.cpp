#include "store/segment_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <vector>

#include "support/temporary_folder.h"

namespace rhapsode::store {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Bytes random_bytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

Result<Extent> append(SegmentWriter& writer, const Bytes& bytes) {
  const std::span<const std::byte> part = bytes;
  return writer.append(std::span(&part, 1));
}

Result<Bytes> read(const SegmentReader& reader, const Extent& extent) {
  Bytes bytes(extent.bytes);
  RH_TRY_STATUS(reader.read(extent, bytes));
  return bytes;
}

class SegmentFileTest : public test::TemporaryFolder {
 protected:
  std::string content() const { return *read_text_file(path_); }
  void set_byte(size_t offset, char value) const {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(value);
  }
  void flip_byte(size_t offset) const { set_byte(offset, static_cast<char>(content()[offset] ^ 1)); }
  void expect_corrupt(const std::string& words) const {
    const auto reader = SegmentReader::open(path_, SegmentKind::kKv);
    ASSERT_FALSE(reader.ok());
    EXPECT_EQ(reader.error().kind, ErrorKind::kCorrupt);
    EXPECT_THAT(reader.error().message, HasSubstr(path_.string()));
    EXPECT_THAT(reader.error().message, HasSubstr(words));
    const auto writer = SegmentWriter::open(path_, SegmentKind::kKv, kSegmentHeaderBytes);
    ASSERT_FALSE(writer.ok());
    EXPECT_EQ(writer.error().message, reader.error().message);
  }

  std::filesystem::path path_ = folder_ / "1.seg";
};

class SegmentKindTest : public SegmentFileTest, public testing::WithParamInterface<SegmentKind> {};

TEST_P(SegmentKindTest, RecordsComeBackAndBeginAtTheAlignment) {
  const uint64_t alignment = GetParam() == SegmentKind::kKv ? 4096 : 64;
  auto writer = SegmentWriter::create(path_, GetParam());
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  EXPECT_EQ(writer->bytes(), kSegmentHeaderBytes);
  std::vector<Extent> extents;
  const std::vector<size_t> sizes = {1, 63, 64, 65, 4095, 4096, 4097, 100'000};
  for (const size_t size : sizes) {
    const auto extent = append(*writer, random_bytes(size, static_cast<uint32_t>(size)));
    ASSERT_TRUE(extent.ok()) << extent.error().message;
    EXPECT_EQ(extent->offset % alignment, 0u);
    EXPECT_EQ(extent->bytes, size);
    extents.push_back(*extent);
  }
  ASSERT_TRUE(writer->sync().ok());
  EXPECT_EQ(std::filesystem::file_size(path_), writer->bytes());
  const auto reader = SegmentReader::open(path_, GetParam());
  ASSERT_TRUE(reader.ok());
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(*read(*reader, extents[i]), random_bytes(sizes[i], static_cast<uint32_t>(sizes[i])));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SegmentKindTest, testing::Values(SegmentKind::kKv, SegmentKind::kCodes),
                         [](const auto& test) { return test.param == SegmentKind::kKv ? "Kv" : "Codes"; });

TEST_F(SegmentFileTest, PartsAreOneRecord) {
  auto writer = SegmentWriter::create(path_, SegmentKind::kCodes);
  const Bytes whole = random_bytes(1000, 1);
  const std::span<const std::byte> bytes = whole;
  const std::vector parts = {bytes.first(1), bytes.subspan(1, 0), bytes.subspan(1, 700), bytes.subspan(701)};
  const auto extent = writer->append(parts);
  ASSERT_TRUE(extent.ok());
  EXPECT_EQ(extent->bytes, whole.size());
  EXPECT_EQ(extent->checksum, record_checksum(whole));
  EXPECT_EQ(*read(*SegmentReader::open(path_, SegmentKind::kCodes), *extent), whole);
  EXPECT_EQ(writer->append({}).error().kind, ErrorKind::kInvalidArgument);
}

TEST_F(SegmentFileTest, OpeningCutsWhatWasNotCommitted) {
  auto writer = SegmentWriter::create(path_, SegmentKind::kCodes);
  const Bytes kept = random_bytes(100, 1);
  const Extent extent = *append(*writer, kept);
  const uint64_t committed = writer->bytes();
  ASSERT_TRUE(append(*writer, random_bytes(5000, 2)).ok());
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 7);  // a torn record behind it
  auto again = SegmentWriter::open(path_, SegmentKind::kCodes, committed);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(std::filesystem::file_size(path_), committed);
  const Bytes next = random_bytes(300, 3);
  const Extent second = *append(*again, next);
  EXPECT_EQ(second.offset, committed);
  const auto reader = SegmentReader::open(path_, SegmentKind::kCodes);
  EXPECT_EQ(*read(*reader, extent), kept);
  EXPECT_EQ(*read(*reader, second), next);
}

TEST_F(SegmentFileTest, AFileThatLostCommittedBytesIsCorruptAndKeptAsItIs) {
  uint64_t committed = 0;
  {
    auto writer = SegmentWriter::create(path_, SegmentKind::kCodes);
    ASSERT_TRUE(append(*writer, random_bytes(100, 1)).ok());
    committed = writer->bytes();
  }
  std::filesystem::resize_file(path_, committed - 1);
  const auto cut = SegmentWriter::open(path_, SegmentKind::kCodes, committed);
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.error().kind, ErrorKind::kCorrupt);
  EXPECT_THAT(cut.error().message, HasSubstr("ends at offset 4223, but 4224 bytes"));
  EXPECT_EQ(std::filesystem::file_size(path_), committed - 1);
  for (const uint64_t nonsense : {uint64_t{0}, uint64_t{64}, kSegmentHeaderBytes + 1}) {
    EXPECT_EQ(SegmentWriter::open(path_, SegmentKind::kCodes, nonsense).error().kind, ErrorKind::kCorrupt);
  }
}

TEST_F(SegmentFileTest, WrongHeadersAreCorrupt) {
  ASSERT_TRUE(SegmentWriter::create(path_, SegmentKind::kKv).ok());
  for (const size_t offset : {size_t{16}, size_t{100}, size_t{4095}}) {
    flip_byte(offset);
    expect_corrupt("at offset 0: the header does not have its checksum");
    flip_byte(offset);
  }
  set_byte(8, 2);
  expect_corrupt("at offset 8: format version 2, this build reads version 1");
  set_byte(8, 1);
  EXPECT_TRUE(SegmentReader::open(path_, SegmentKind::kKv).ok());
  EXPECT_THAT(SegmentReader::open(path_, SegmentKind::kCodes).error().message,
              HasSubstr("at offset 12: a segment of kind 1, expected 2"));
  flip_byte(0);
  expect_corrupt("at offset 0: this is not a segment file");
  std::filesystem::resize_file(path_, 1000);
  expect_corrupt("ends at offset 1000, inside its header");
  std::filesystem::resize_file(path_, 0);
  expect_corrupt("ends at offset 0, inside its header");
  std::filesystem::remove(path_);
  EXPECT_EQ(SegmentWriter::open(path_, SegmentKind::kKv, kSegmentHeaderBytes).error().kind,
            ErrorKind::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SegmentFileTest, TheHeaderIsWhatTheFormatPageSays) {
  ASSERT_TRUE(SegmentWriter::create(path_, SegmentKind::kCodes).ok());
  const std::string header = content();
  ASSERT_EQ(header.size(), 4096u);
  EXPECT_EQ(header.substr(0, 16), std::string("RHAPSEG\n\1\0\0\0\2\0\0\0", 16));
  EXPECT_EQ(header.substr(32, 4056), std::string(4056, '\0'));
  const uint64_t checksum = record_checksum(std::as_bytes(std::span(header).first(4088)));
  EXPECT_EQ(std::memcmp(&checksum, header.data() + 4088, sizeof(checksum)), 0);
}

TEST_F(SegmentFileTest, EveryFlippedBitOfARecordIsFound) {
  auto writer = SegmentWriter::create(path_, SegmentKind::kCodes);
  const Extent extent = *append(*writer, random_bytes(40, 1));
  const auto reader = SegmentReader::open(path_, SegmentKind::kCodes);
  for (size_t i = 0; i < extent.bytes; ++i) {
    flip_byte(extent.offset + i);
    const auto bytes = read(*reader, extent);
    ASSERT_FALSE(bytes.ok()) << i;
    EXPECT_EQ(bytes.error().kind, ErrorKind::kCorrupt);
    EXPECT_THAT(bytes.error().message, HasSubstr(path_.string() + " at offset 4096: 40 bytes"));
    flip_byte(extent.offset + i);
  }
  EXPECT_TRUE(read(*reader, extent).ok());
}

TEST_F(SegmentFileTest, ExtentsThatDoNotFitAreRefused) {
  auto writer = SegmentWriter::create(path_, SegmentKind::kCodes);
  const Extent good = *append(*writer, random_bytes(64, 1));
  const auto reader = SegmentReader::open(path_, SegmentKind::kCodes);
  Bytes room(64);
  for (const uint64_t offset :
       {uint64_t{0}, uint64_t{4095}, uint64_t{4097}, uint64_t{8192}, ~uint64_t{0}, ~uint64_t{0} - 63}) {
    Extent extent = good;
    extent.offset = offset;
    const Status status = reader->read(extent, room);
    ASSERT_FALSE(status.ok()) << offset;
    EXPECT_EQ(status.error().kind, ErrorKind::kCorrupt);
  }
  EXPECT_EQ(reader->read(good, std::span(room).first(63)).error().kind, ErrorKind::kInvalidArgument);
}

TEST_F(SegmentFileTest, ADamagedLengthDoesNotAskForMemory) {
  ASSERT_TRUE(SegmentWriter::create(path_, SegmentKind::kKv).ok());
  const auto reader = SegmentReader::open(path_, SegmentKind::kKv);
  const Extent extent{.segment = 1, .offset = kSegmentHeaderBytes, .bytes = ~uint64_t{0}, .checksum = 0};
  EXPECT_EQ(reader->check(extent).error().kind, ErrorKind::kCorrupt);
}

TEST_F(SegmentFileTest, CreateKeepsRecordsAndReplacesAnEmptySegment) {
  const std::string first = [&] {
    EXPECT_TRUE(SegmentWriter::create(path_, SegmentKind::kKv).ok());
    return content();
  }();
  auto writer = SegmentWriter::create(path_, SegmentKind::kKv);
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  EXPECT_NE(content(), first) << "each file has a random id of its own";
  ASSERT_TRUE(append(*writer, random_bytes(10, 1)).ok());
  const std::string before = content();
  EXPECT_EQ(SegmentWriter::create(path_, SegmentKind::kKv).error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(content(), before);
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    names.insert(entry.path().filename());
  EXPECT_EQ(names, std::set<std::string>{"1.seg"}) << "no temporary files stay";
}

// In a child whose files may not grow beyond `limit`: the number of the first check that fails, or 0.
int append_under_limit(const std::filesystem::path& path, rlim_t limit) {
  auto writer = SegmentWriter::create(path, SegmentKind::kCodes);
  if (!writer.ok()) return 1;
  const auto kept = append(*writer, random_bytes(1000, 1));
  if (!kept.ok()) return 2;
  const uint64_t before = writer->bytes();
  const rlimit limits{limit, limit};
  ::signal(SIGXFSZ, SIG_IGN);
  if (::setrlimit(RLIMIT_FSIZE, &limits) != 0) return 3;
  const auto full = append(*writer, random_bytes(1 << 20, 2));
  if (full.ok() || full.error().kind != ErrorKind::kNoSpace) return 4;
  if (writer->bytes() != before || std::filesystem::file_size(path) != before) return 5;
  const auto small = append(*writer, random_bytes(500, 3));  // what fits still goes in
  if (!small.ok() || small->offset != before || !writer->sync().ok()) return 6;
  const auto reader = SegmentReader::open(path, SegmentKind::kCodes);
  if (!reader.ok() || *read(*reader, *kept) != random_bytes(1000, 1)) return 7;
  return *read(*reader, *small) == random_bytes(500, 3) ? 0 : 8;
}

TEST_F(SegmentFileTest, AFullDiskCutsTheFileBack) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(append_under_limit(path_, 100'000));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(SegmentFileTest, AFolderThatIsMissingIsReported) {
  EXPECT_EQ(SegmentWriter::create(folder_ / "none" / "1.seg", SegmentKind::kKv).error().kind,
            ErrorKind::kNotFound);
}

}  // namespace
}  // namespace rhapsode::store
