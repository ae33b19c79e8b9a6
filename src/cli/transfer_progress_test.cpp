// The progress of a download, as a bar and as lines.
#include "cli/transfer_progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "cli/text_width.h"

namespace rhapsode::cli {
namespace {

// A Terminal whose standard error is a pipe that the test reads.
struct Stage {
  explicit Stage(const TerminalTraits& traits) {
    EXPECT_EQ(pipe2(fds, O_NONBLOCK), 0);
    terminal = std::make_unique<Terminal>(traits, fds[1], fds[1]);
  }
  ~Stage() {
    terminal.reset();
    close(fds[0]);
    close(fds[1]);
  }
  std::string read_all() const {
    std::string text(1 << 16, '\0');
    const ssize_t bytes = ::read(fds[0], text.data(), text.size());
    text.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
    return text;
  }
  int fds[2] = {-1, -1};
  std::unique_ptr<Terminal> terminal;
};

TerminalTraits terminal_of(int columns) {
  return {.out_is_terminal = true,
          .err_is_terminal = true,
          .colours = true,
          .can_erase = true,
          .columns = columns};
}

TEST(TransferProgress, ALineForEveryTenthInAPipe) {
  Stage stage({});
  TransferProgress progress(*stage.terminal, "model");
  for (int i = 0; i <= 100; ++i)
    progress.update({"downloading", static_cast<uint64_t>(i) * 1'000'000, 100'000'000}, i);
  const std::string text = stage.read_all();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10);
  EXPECT_TRUE(text.starts_with("model: downloading 10 % of 100 MB, 1.0 MB/s\n")) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(TransferProgress, VerifyingIsSaidOnceInAPipe) {
  Stage stage({});
  TransferProgress progress(*stage.terminal, "model");
  progress.update({"downloading", 100, 100}, 0);
  for (int round = 0; round < 2; ++round) {
    for (uint64_t i = 0; i <= 10; ++i) progress.update({"verifying", i * 10, 100, false}, 1);
  }
  EXPECT_EQ(stage.read_all(), "model: downloading 100 % of 100 B\nmodel: verifying\n");
}

TEST(TransferProgress, ABarWithRateAndTimeLeft) {
  Stage stage(terminal_of(100));
  TransferProgress progress(*stage.terminal, "model");
  progress.update({"downloading", 0, 400'000'000}, 10.0);
  progress.update({"downloading", 100'000'000, 400'000'000}, 12.0);
  EXPECT_EQ(progress.bar_line(),
            "model: downloading ██████░░░░░░░░░░░░░░░░░░  25 %  100 MB of 400 MB  50.0 MB/s  6 s left");
  EXPECT_NE(stage.read_all().find("\r\x1b[K"), std::string::npos);
}

TEST(TransferProgress, TheLineFitsTheTerminal) {
  for (const int columns : {40, 60, 80, 120}) {
    Stage stage(terminal_of(columns));
    TransferProgress progress(*stage.terminal, "a-model");
    progress.update({"downloading", 0, 400'000'000}, 0);
    progress.update({"downloading", 200'000'000, 400'000'000}, 2);
    const std::string drawn = stage.read_all();
    const std::string line = drawn.substr(drawn.rfind("\x1b[K") + 3);
    EXPECT_LT(display_width(line), columns) << line;
  }
}

TEST(TransferProgress, DrawsAtMostTenTimesASecond) {
  Stage stage(terminal_of(80));
  TransferProgress progress(*stage.terminal, "model");
  for (int i = 0; i < 1000; ++i)
    progress.update({"downloading", static_cast<uint64_t>(i), 1'000'000}, i * 0.001);
  const std::string text = stage.read_all();
  EXPECT_LE(std::count(text.begin(), text.end(), '\r'), 11);
}

TEST(TransferProgress, UnknownTotals) {
  Stage stage({});
  TransferProgress progress(*stage.terminal, "model");
  progress.update({"downloading", 0, 0}, 0);
  progress.update({"downloading", 150'000'000, 0}, 1);
  EXPECT_EQ(stage.read_all(), "model: downloading 150 MB, 150 MB/s\n");
}

}  // namespace
}  // namespace rhapsode::cli
