#include "io/batch_reader.h"

#include <mutex>
#include <vector>

#include "io/file.h"

#ifdef RHAPSODE_URING
#include <liburing.h>
#endif

namespace rhapsode {
namespace {

class PreadReader final : public BatchReader {
 public:
  explicit PreadReader(File file) : file_(std::move(file)) {}
  Status read(std::span<const ReadRequest> requests) const override {
    for (const ReadRequest& request : requests) RH_TRY_STATUS(file_.read_at(request.bytes, request.offset));
    return {};
  }
  BatchMethod method() const override { return BatchMethod::kPread; }
  const std::filesystem::path& path() const override { return file_.path(); }

 private:
  File file_;
};

#ifdef RHAPSODE_URING
struct Ring {
  Ring() : status(io_uring_queue_init(BatchReader::kRingReads, &ring, 0)) {}
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() {
    if (status == 0) io_uring_queue_exit(&ring);
  }
  io_uring ring{};
  int status;
};

class UringReader final : public BatchReader {
 public:
  explicit UringReader(File file) : file_(std::move(file)) {}

  bool works() const {
    std::unique_ptr<Ring> ring = take();
    if (ring->status != 0) return false;
    give_back(std::move(ring));
    return true;
  }

  Status read(std::span<const ReadRequest> requests) const override {
    std::unique_ptr<Ring> ring = take();
    if (ring->status != 0) {
      return make_system_error(-ring->status, "cannot read " + file_.path().string() + " by io_uring");
    }
    for (size_t begin = 0; begin < requests.size(); begin += kRingReads) {
      const size_t count = std::min<size_t>(kRingReads, requests.size() - begin);
      // A ring with reads under way is closed, not kept: the system waits for them then.
      RH_TRY_STATUS(read_some(ring->ring, requests.subspan(begin, count)));
    }
    give_back(std::move(ring));
    return {};
  }
  BatchMethod method() const override { return BatchMethod::kUring; }
  const std::filesystem::path& path() const override { return file_.path(); }

 private:
  Status read_some(io_uring& ring, std::span<const ReadRequest> requests) const {
    for (size_t i = 0; i < requests.size(); ++i) {
      io_uring_sqe* entry = io_uring_get_sqe(&ring);
      io_uring_prep_read(entry, file_.descriptor(), requests[i].bytes.data(),
                         static_cast<unsigned>(requests[i].bytes.size()), requests[i].offset);
      io_uring_sqe_set_data64(entry, i);
    }
    int submitted = 0;
    while (submitted < static_cast<int>(requests.size())) {
      const int sent = io_uring_submit(&ring);
      if (sent < 0) return make_system_error(-sent, "cannot read " + file_.path().string() + " by io_uring");
      submitted += sent;
    }
    std::vector<size_t> again;  // short, or not done for a reason that pread will name
    for (size_t done = 0; done < requests.size();) {
      io_uring_cqe* event = nullptr;
      const int waited = io_uring_wait_cqe(&ring, &event);
      if (waited == -EINTR) continue;
      if (waited < 0)
        return make_system_error(-waited, "cannot read " + file_.path().string() + " by io_uring");
      const auto i = static_cast<size_t>(io_uring_cqe_get_data64(event));
      if (event->res < 0 || static_cast<size_t>(event->res) != requests[i].bytes.size()) again.push_back(i);
      io_uring_cqe_seen(&ring, event);
      ++done;
    }
    for (const size_t i : again) RH_TRY_STATUS(file_.read_at(requests[i].bytes, requests[i].offset));
    return {};
  }

  std::unique_ptr<Ring> take() const {
    {
      const std::lock_guard lock(mutex_);
      if (!rings_.empty()) {
        std::unique_ptr<Ring> ring = std::move(rings_.back());
        rings_.pop_back();
        return ring;
      }
    }
    return std::make_unique<Ring>();
  }

  void give_back(std::unique_ptr<Ring> ring) const {
    const std::lock_guard lock(mutex_);
    rings_.push_back(std::move(ring));
  }

  File file_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Ring>> rings_;  // nobody is reading with
};
#endif

}  // namespace

Result<std::unique_ptr<BatchReader>> BatchReader::open(const std::filesystem::path& path,
                                                       BatchMethod method) {
  RH_TRY(File file, File::open_read(path));
#ifdef RHAPSODE_URING
  if (method != BatchMethod::kPread) {
    auto reader = std::make_unique<UringReader>(std::move(file));
    if (reader->works()) return std::unique_ptr<BatchReader>(std::move(reader));
    if (method == BatchMethod::kBest) return open(path, BatchMethod::kPread);
  }
#endif
  if (method == BatchMethod::kUring) {
    return make_error(ErrorKind::kUnsupported, "{} cannot be read by io_uring: this system does not allow it",
                      path.string());
  }
  return std::unique_ptr<BatchReader>(std::make_unique<PreadReader>(std::move(file)));
}

}  // namespace rhapsode
