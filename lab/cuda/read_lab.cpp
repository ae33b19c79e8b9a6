// The laboratory of reading KV files into pinned memory: where the time goes, from the system's page cache
// and from the disk.
//
//   read_lab FOLDER [--mib 1024] [--seconds 0.5]
//
// A file of extents of 6 MB, as a passage's KV of a 0.5B model has, is written to FOLDER and read in another
// order by 1 to 16 threads, an extent each, in several ways; "now" is what the store does: an extent into a
// buffer, its XXH3, then copied to its pages. Ways that read in pieces sum each while it is in the core's
// cache. "disk": the system was asked to let go of the file before each, and each way ends after some time.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <random>

#ifdef RHAPSODE_URING
#include <liburing.h>
#endif

#include "base/clock.h"
#include "base/parallel.h"
#include "cuda/lab_timing.h"
#include "io/page_cache_view.h"

namespace rhapsode::kernels::cuda::lab {
namespace {

constexpr size_t kExtent = 5'900'288;  // whole pages
constexpr size_t kPieceOfKv = 8192;    // what goes to one place of a page

struct Source {
  int buffered = -1;
  int direct = -1;  // past the page cache; -1: not here
  const std::byte* mapped = nullptr;
  size_t extents = 0;
};

void read_all(int file, std::byte* to, size_t bytes, size_t offset) {
  while (bytes > 0) {
    const ssize_t count = ::pread(file, to, bytes, static_cast<off_t>(offset));
    if (count <= 0) stop(fmt::format("reading failed: {}", std::strerror(errno)));
    to += count;
    bytes -= static_cast<size_t>(count);
    offset += static_cast<size_t>(count);
  }
}

// As decoding does: many small pieces to where they belong.
void scatter(std::byte* to, const std::byte* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kPieceOfKv) {
    std::memcpy(to + at, from + at, std::min(kPieceOfKv, bytes - at));
  }
}

uint64_t sum(const std::byte* data, size_t bytes) {
  return XXH3_64bits(data, bytes);
}

struct Job {
  const Source& source;
  std::byte* room;    // of this thread
  std::byte* pinned;  // where the extent goes
  size_t offset;
};

// Pieces read one after another, each summed and, if it was read to the room, scattered.
uint64_t in_pieces(const Job& job, int file, size_t piece, bool through_room) {
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_64bits_reset(&state);
  for (size_t at = 0; at < kExtent; at += piece) {
    const size_t bytes = std::min(piece, kExtent - at);
    std::byte* to = through_room ? job.room : job.pinned + at;
    read_all(file, to, bytes, job.offset + at);
    XXH3_64bits_update(&state, to, bytes);
    if (through_room) scatter(job.pinned + at, to, bytes);
  }
  return XXH3_64bits_digest(&state);
}

struct Way {
  const char* name;
  std::function<uint64_t(const Job&)> run;
  bool checked = true;
  bool direct = false;
  bool cold_too = false;
};

std::vector<Way> ways() {
  return {
      {"read only",
       [](const Job& job) {
         read_all(job.source.buffered, job.room, kExtent, job.offset);
         return uint64_t{0};
       },
       false},
      {"read, XXH3",
       [](const Job& job) {
         read_all(job.source.buffered, job.room, kExtent, job.offset);
         return sum(job.room, kExtent);
       }},
      {"now: read, XXH3, scatter",
       [](const Job& job) {
         read_all(job.source.buffered, job.room, kExtent, job.offset);
         const uint64_t all = sum(job.room, kExtent);
         scatter(job.pinned, job.room, kExtent);
         return all;
       },
       true, false, true},
      {"pieces of 64 KiB: read, XXH3, scatter",
       [](const Job& job) { return in_pieces(job, job.source.buffered, 64u << 10, true); }},
      {"pieces of 256 KiB: read, XXH3, scatter",
       [](const Job& job) { return in_pieces(job, job.source.buffered, 256u << 10, true); }, true, false,
       true},
      {"pieces of 1 MiB: read, XXH3, scatter",
       [](const Job& job) { return in_pieces(job, job.source.buffered, 1u << 20, true); }},
      {"pieces of 256 KiB into place, XXH3",
       [](const Job& job) { return in_pieces(job, job.source.buffered, 256u << 10, false); }},
      {"mapped: XXH3, scatter",
       [](const Job& job) {
         const uint64_t all = sum(job.source.mapped + job.offset, kExtent);
         scatter(job.pinned, job.source.mapped + job.offset, kExtent);
         return all;
       }},
      {"read ahead, pieces of 256 KiB, XXH3, scatter",
       [](const Job& job) {
         ::posix_fadvise(job.source.buffered, static_cast<off_t>(job.offset), kExtent, POSIX_FADV_WILLNEED);
         return in_pieces(job, job.source.buffered, 256u << 10, true);
       },
       true, false, true},
      {"direct: whole, XXH3, scatter",
       [](const Job& job) {
         read_all(job.source.direct, job.room, kExtent, job.offset);
         const uint64_t all = sum(job.room, kExtent);
         scatter(job.pinned, job.room, kExtent);
         return all;
       },
       true, true, true},
      {"direct: pieces of 1 MiB, XXH3, scatter",
       [](const Job& job) { return in_pieces(job, job.source.direct, 1u << 20, true); }, true, true, true},
  };
}

#ifdef RHAPSODE_URING
// One thread asks for every piece of its extent at once, sums and scatters when all are there.
uint64_t by_uring(const Job& job, int file) {
  constexpr size_t kPiece = 256u << 10;
  thread_local std::unique_ptr<io_uring, void (*)(io_uring*)> ring(
      [] {
        auto* made = new io_uring;
        if (io_uring_queue_init(64, made, 0) != 0) stop("no io_uring");
        return made;
      }(),
      [](io_uring* made) {
        io_uring_queue_exit(made);
        delete made;
      });
  unsigned sent = 0;
  for (size_t at = 0; at < kExtent; at += kPiece, ++sent) {
    io_uring_sqe* entry = io_uring_get_sqe(ring.get());
    io_uring_prep_read(entry, file, job.room + at, static_cast<unsigned>(std::min(kPiece, kExtent - at)),
                       job.offset + at);
  }
  io_uring_submit_and_wait(ring.get(), sent);
  for (unsigned i = 0; i < sent; ++i) {
    io_uring_cqe* event = nullptr;
    if (io_uring_wait_cqe(ring.get(), &event) != 0 || event->res <= 0) stop("io_uring failed to read");
    io_uring_cqe_seen(ring.get(), event);
  }
  const uint64_t all = sum(job.room, kExtent);
  scatter(job.pinned, job.room, kExtent);
  return all;
}

bool uring_works() {
  io_uring ring;
  if (io_uring_queue_init(8, &ring, 0) != 0) return false;
  io_uring_queue_exit(&ring);
  return true;
}
#endif

class Lab {
 public:
  Lab(const std::filesystem::path& folder, size_t mib, double seconds) : seconds_(seconds) {
    path_ = folder / "read_lab.bin";
    source_.extents = (mib << 20) / kExtent;
    write();
    source_.buffered = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    source_.direct = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    source_.mapped = static_cast<const std::byte*>(
        ::mmap(nullptr, source_.extents * kExtent, PROT_READ, MAP_SHARED, source_.buffered, 0));
    order_.resize(source_.extents);
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::shuffle(order_.begin(), order_.end(), std::mt19937(5));
    pinned_bytes_ = source_.extents * kExtent;
    must(cudaHostAlloc(reinterpret_cast<void**>(&pinned_), pinned_bytes_, cudaHostAllocPortable));
    for (int t = 0; t < 16; ++t) {
      rooms_.push_back(static_cast<std::byte*>(std::aligned_alloc(4096, kExtent)));
      std::memset(rooms_.back(), 1, kExtent);
    }
  }
  ~Lab() {
    cudaFreeHost(pinned_);
    for (std::byte* room : rooms_) std::free(room);
    ::unlink(path_.c_str());
  }

  void run() {
    std::printf("%s: %zu extents of %.1f MB\n", path_.c_str(), source_.extents, kExtent / 1e6);
    std::vector<Way> all = ways();
#ifdef RHAPSODE_URING
    if (uring_works()) {
      all.push_back({"io_uring, direct: pieces of 256 KiB, XXH3, scatter",
                     [](const Job& job) { return by_uring(job, job.source.direct); }, true, true, true});
      all.push_back({"io_uring: pieces of 256 KiB, XXH3, scatter",
                     [](const Job& job) { return by_uring(job, job.source.buffered); }, true, false, true});
    } else {
      std::printf("no io_uring here\n");
    }
#endif
    for (const Way& way : all) measure(way, false);
    if (!let_go()) {
      std::printf("the system does not let go of this file: no disk\n");
      return;
    }
    for (const Way& way : all) {
      if (way.cold_too) measure(way, true);
    }
  }

 private:
  void write() {
    const int file = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0) stop(fmt::format("cannot write {}", path_.string()));
    std::mt19937_64 random(7);
    std::vector<uint64_t> words(kExtent / 8);
    for (uint64_t& word : words) word = random();
    const int64_t begin = now_ns();
    for (size_t e = 0; e < source_.extents; ++e) {
      words[0] = e;
      sums_.push_back(sum(reinterpret_cast<const std::byte*>(words.data()), kExtent));
      if (::pwrite(file, words.data(), kExtent, static_cast<off_t>(e * kExtent)) !=
          static_cast<ssize_t>(kExtent)) {
        stop("writing failed");
      }
    }
    ::fsync(file);
    ::close(file);
    std::printf("written and synced at %.2f GB/s\n",
                static_cast<double>(source_.extents * kExtent) / ms_between(begin, now_ns()) / 1e6);
  }

  // Whether the system no longer keeps it.
  bool let_go() {
    // What is mapped stays.
    if (source_.mapped != nullptr) ::munmap(const_cast<std::byte*>(source_.mapped), pinned_bytes_);
    source_.mapped = nullptr;
    ::fsync(source_.buffered);
    ::posix_fadvise(source_.buffered, 0, 0, POSIX_FADV_DONTNEED);
    const auto file = File::open_read(path_);
    return file.ok() && !PageCacheView(*file).holds(0, pinned_bytes_);
  }

  void measure(const Way& way, bool cold) {
    if (way.direct && source_.direct < 0) return;
    std::string line = fmt::format("  {:5} {:52}", cold ? "disk" : "cache", way.name);
    for (const int threads : {1, 2, 4, 8, 16}) {
      if (cold && threads < 4) continue;
      if (cold) let_go();
      line += fmt::format(" {:2}: {:6.2f}", threads, rate(way, threads));
    }
    std::printf("%s GB/s\n", line.c_str());
  }

  double rate(const Way& way, int threads) {
    std::atomic<size_t> next{0}, thread{0}, done{0};
    std::atomic<bool> wrong{false};
    const int64_t begin = now_ns();
    run_on_threads(threads, [&] {
      std::byte* room = rooms_[thread++];
      for (size_t i = next++; i < order_.size(); i = next++) {
        if (ms_between(begin, now_ns()) > seconds_ * 1e3) break;
        const size_t e = order_[i];
        const uint64_t got = way.run({source_, room, pinned_ + i * kExtent, e * kExtent});
        if (way.checked && got != sums_[e]) wrong = true;
        ++done;
      }
    });
    const double ms = ms_between(begin, now_ns());
    if (wrong) stop("a sum is wrong");
    return static_cast<double>(done * kExtent) / ms / 1e6;
  }

  std::filesystem::path path_;
  double seconds_;
  Source source_;
  std::vector<size_t> order_;
  std::vector<uint64_t> sums_;
  std::byte* pinned_ = nullptr;
  size_t pinned_bytes_ = 0;
  std::vector<std::byte*> rooms_;
};

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc < 2) stop("give a folder");
  size_t mib = 1024;
  double seconds = 0.5;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--mib") == 0) mib = std::stoul(argv[i + 1]);
    if (std::strcmp(argv[i], "--seconds") == 0) seconds = std::stod(argv[i + 1]);
  }
  Lab(argv[1], mib, seconds).run();
  return 0;
}

}  // namespace
}  // namespace rhapsode::kernels::cuda::lab

int main(int argc, char** argv) {
  return rhapsode::kernels::cuda::lab::main(argc, argv);
}
