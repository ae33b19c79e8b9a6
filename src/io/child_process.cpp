#include "io/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

namespace rhapsode {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostErrorBytes = 4096;

class Descriptor {
 public:
  explicit Descriptor(int value = -1) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }
  int get() const { return value_; }
  void set(int value) {
    close();
    value_ = value;
  }
  void close() {
    if (value_ >= 0) ::close(value_);
    value_ = -1;
  }

 private:
  int value_;
};

struct Pipe {
  Descriptor read;
  Descriptor write;
  bool open() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
    read.set(ends[0]);
    write.set(ends[1]);
    return true;
  }
};

// Kills the group and takes the child's status, unless wait() did.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ <= 0) return;
    kill_group();
    wait();
  }
  void kill_group() const { ::kill(-pid_, SIGKILL); }
  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

class SpawnSettings {
 public:
  SpawnSettings() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

Result<pid_t> spawn(const std::vector<std::string>& arguments, int in, int out, int err) {
  SpawnSettings settings;
  ::posix_spawn_file_actions_adddup2(&settings.actions, in, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&settings.actions, out, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&settings.actions, err, STDERR_FILENO);
  // Libraries may have opened descriptors that would be passed on.
  ::posix_spawn_file_actions_addclosefrom_np(&settings.actions, STDERR_FILENO + 1);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&settings.attributes, &none);
  ::posix_spawnattr_setpgroup(&settings.attributes, 0);
  ::posix_spawnattr_setflags(&settings.attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const char* path = std::getenv("PATH");
  std::string path_line = std::string("PATH=") + (path == nullptr ? "/usr/bin:/bin" : path);
  std::string locale_line = "LC_ALL=C";
  std::array<char*, 3> environment = {path_line.data(), locale_line.data(), nullptr};
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, arguments[0].c_str(), &settings.actions, &settings.attributes,
                                   argv.data(), environment.data());
  if (error == ENOENT)
    return make_error(ErrorKind::kNotFound, "the program {} is not installed", arguments[0]);
  if (error != 0) return make_system_error(error, "cannot start " + arguments[0]);
  return pid;
}

void limit_child(pid_t pid, const ChildLimits& limits) {
  const rlimit memory{.rlim_cur = limits.memory_bytes, .rlim_max = limits.memory_bytes};
  const rlimit no_core{.rlim_cur = 0, .rlim_max = 0};
  ::prlimit(pid, RLIMIT_AS, &memory, nullptr);
  ::prlimit(pid, RLIMIT_CORE, &no_core, nullptr);
}

// What one read brings, at most up to `most` bytes in all; false at the end.
Result<bool> take(Descriptor& from, std::string& to, size_t most) {
  std::array<char, 1 << 16> buffer;
  const ssize_t count = ::read(from.get(), buffer.data(), buffer.size());
  if (count < 0) {
    if (errno == EINTR) return true;
    return make_system_error(errno, "cannot read from a child process");
  }
  to.append(buffer.data(), std::min(static_cast<size_t>(count), most - std::min(most, to.size())));
  return count > 0;
}

}  // namespace

Result<ChildOutput> run_child(const std::vector<std::string>& arguments, int input_descriptor,
                              const ChildLimits& limits) {
  const auto deadline = Clock::now() + limits.time;
  Pipe out;
  Pipe err;
  if (!out.open() || !err.open()) return make_system_error(errno, "cannot start " + arguments[0]);
  RH_TRY(const pid_t pid, spawn(arguments, input_descriptor, out.write.get(), err.write.get()));
  Child child(pid);
  limit_child(pid, limits);
  out.write.close();
  err.write.close();
  ChildOutput result;
  while (out.read.get() >= 0 || err.read.get() >= 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    std::array<pollfd, 2> waiting = {pollfd{out.read.get(), POLLIN, 0}, pollfd{err.read.get(), POLLIN, 0}};
    const int ready =
        left.count() <= 0 ? 0 : ::poll(waiting.data(), waiting.size(), static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return make_system_error(errno, "cannot wait for " + arguments[0]);
    if (ready == 0) {
      return make_error(ErrorKind::kTooLarge, "{} took more than {} s and was stopped", arguments[0],
                        limits.time.count() / 1000);
    }
    if (waiting[0].revents != 0) {
      RH_TRY(const bool more, take(out.read, result.output, limits.output_bytes + 1));
      if (!more) out.read.close();
      if (result.output.size() > limits.output_bytes) {
        return make_error(ErrorKind::kTooLarge, "{} gave more than {} MiB of output and was stopped",
                          arguments[0], limits.output_bytes >> 20);
      }
    }
    if (waiting[1].revents != 0) {
      RH_TRY(const bool more, take(err.read, result.errors, kMostErrorBytes));
      if (!more) err.read.close();
    }
  }
  result.exit_code = child.wait();
  return result;
}

Result<int> memory_file(std::string_view bytes) {
  const int descriptor = ::memfd_create("rhapsode-input", MFD_CLOEXEC);
  if (descriptor < 0) return make_system_error(errno, "cannot make a file in memory");
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      ::close(descriptor);
      return make_system_error(error, "cannot fill a file in memory");
    }
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  ::lseek(descriptor, 0, SEEK_SET);
  return descriptor;
}

}  // namespace rhapsode
