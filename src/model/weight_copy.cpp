#include "model/weight_copy.h"

#include <fcntl.h>
#include <ggml-backend.h>
#include <ggml.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include "base/sha256.h"
#include "base/system.h"
#include "io/file.h"
#include "model/file_hash.h"

namespace rhapsode::model {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kAlignment = 32;
constexpr uint64_t kReserveBytes = 64u << 20;  // stays free on the disk
constexpr int64_t kSlabElements = 1 << 19;     // converted at a time by one thread

ggml_type ggml_type_of(CopyType type) {
  switch (type) {
    case CopyType::kBF16:
      return GGML_TYPE_BF16;
    case CopyType::kF16:
      return GGML_TYPE_F16;
    case CopyType::kF32:
      return GGML_TYPE_F32;
  }
  return GGML_TYPE_F32;
}

// As libllama numbers "mostly F32, F16, BF16" in general.file_type.
uint32_t file_type_of(CopyType type) {
  switch (type) {
    case CopyType::kBF16:
      return 32;
    case CopyType::kF16:
      return 1;
    case CopyType::kF32:
      return 0;
  }
  return 0;
}

uint64_t padded(uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t elements_of(const GgufTensor& tensor) {
  return tensor.shape[0] * tensor.shape[1] * tensor.shape[2] * tensor.shape[3];
}

bool is_converted(const GgufTensor& tensor, CopyType type) {
  if (tensor.dims < 2 || tensor.type == ggml_type_of(type)) return false;
  return tensor.type == GGML_TYPE_F32 ||
         ggml_get_type_traits(static_cast<ggml_type>(tensor.type))->to_float != nullptr;
}

uint64_t bytes_after(const GgufTensor& tensor, CopyType type) {
  if (!is_converted(tensor, type)) return tensor.data.size();
  return static_cast<uint64_t>(elements_of(tensor)) * (type == CopyType::kF32 ? 4 : 2);
}

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out.append(text);
}

// Everything before the weights: metadata as they are, tensors with their new types.
std::string make_header(const GgufFile& file, CopyType type) {
  std::string entries;
  uint64_t count = 1;
  for (const std::string_view key : file.keys()) {
    if (key.starts_with("split.") || key == "general.alignment" || key == "general.file_type") continue;
    const std::span<const std::byte> raw = file.raw_entry(key);
    entries.append(reinterpret_cast<const char*>(raw.data()), raw.size());
    ++count;
  }
  put_text(entries, "general.file_type");
  put<uint32_t>(entries, static_cast<uint32_t>(GgufType::kU32));
  put<uint32_t>(entries, file_type_of(type));
  std::string header = "GGUF";
  put<uint32_t>(header, 3);
  put<uint64_t>(header, file.tensors().size());
  put<uint64_t>(header, count);
  header += entries;
  uint64_t offset = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    put_text(header, tensor.name);
    put<uint32_t>(header, static_cast<uint32_t>(tensor.dims));
    for (int i = 0; i < tensor.dims; ++i) put<int64_t>(header, tensor.shape[static_cast<size_t>(i)]);
    put<int32_t>(header, is_converted(tensor, type) ? ggml_type_of(type) : tensor.type);
    put<uint64_t>(header, offset);
    offset += padded(bytes_after(tensor, type));
  }
  header.resize(padded(header.size()), '\0');
  return header;
}

// Converts all tensors into a file, slab by slab, on several threads.
class Converter {
 public:
  Converter(const GgufFile& file, CopyType type, File& out, uint64_t data_start);
  Status run(int threads, const std::function<bool(uint64_t, uint64_t)>& on_progress);

 private:
  struct Slab {
    const GgufTensor* tensor;
    int64_t first_row, rows;
    uint64_t offset;  // in the output file
    uint64_t bytes;
  };
  struct Scratch {
    std::vector<float> floats;
    std::vector<std::byte> out;
  };
  void work(const std::function<bool(uint64_t, uint64_t)>* on_progress);
  Status convert(const Slab& slab, Scratch& scratch);

  CopyType type_;
  File& out_;
  std::vector<Slab> slabs_;
  uint64_t total_bytes_ = 0;
  std::atomic<size_t> next_{0};
  std::atomic<uint64_t> done_bytes_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  Status failure_;  // written once, by the thread that set failed_
};

Converter::Converter(const GgufFile& file, CopyType type, File& out, uint64_t data_start)
    : type_(type), out_(out) {
  uint64_t offset = data_start;
  for (const GgufTensor& tensor : file.tensors()) {
    const int64_t rows = elements_of(tensor) / tensor.shape[0];
    const int64_t step = std::max<int64_t>(1, kSlabElements / tensor.shape[0]);
    const uint64_t row_bytes = bytes_after(tensor, type) / static_cast<uint64_t>(rows);
    for (int64_t row = 0; row < rows; row += step) {
      const int64_t count = std::min(step, rows - row);
      slabs_.push_back({&tensor, row, count, offset + static_cast<uint64_t>(row) * row_bytes,
                        static_cast<uint64_t>(count) * row_bytes});
      total_bytes_ += slabs_.back().bytes;
    }
    offset += padded(bytes_after(tensor, type));
  }
}

Status Converter::convert(const Slab& slab, Scratch& scratch) {
  const GgufTensor& tensor = *slab.tensor;
  const auto from_type = static_cast<ggml_type>(tensor.type);
  const size_t row_bytes = ggml_row_size(from_type, tensor.shape[0]);
  const std::span<const std::byte> from = tensor.data.subspan(static_cast<size_t>(slab.first_row) * row_bytes,
                                                              static_cast<size_t>(slab.rows) * row_bytes);
  if (!is_converted(tensor, type_)) return out_.write_at(from, slab.offset);
  const int64_t count = slab.rows * tensor.shape[0];
  scratch.floats.resize(static_cast<size_t>(count));
  if (from_type == GGML_TYPE_F32) {
    std::memcpy(scratch.floats.data(), from.data(), from.size());
  } else {
    ggml_get_type_traits(from_type)->to_float(from.data(), scratch.floats.data(), count);
  }
  scratch.out.resize(slab.bytes);
  void* to = scratch.out.data();
  switch (type_) {
    case CopyType::kBF16:
      ggml_fp32_to_bf16_row_ref(scratch.floats.data(), static_cast<ggml_bf16_t*>(to), count);
      break;
    case CopyType::kF16:
      ggml_fp32_to_fp16_row(scratch.floats.data(), static_cast<ggml_fp16_t*>(to), count);
      break;
    case CopyType::kF32:
      std::memcpy(to, scratch.floats.data(), slab.bytes);
      break;
  }
  return out_.write_at(scratch.out, slab.offset);
}

Status cancelled() {
  return make_error(ErrorKind::kCancelled, "copying the weights was cancelled");
}

void Converter::work(const std::function<bool(uint64_t, uint64_t)>* on_progress) {
  Scratch scratch;
  for (size_t i = next_++; i < slabs_.size() && !stop_; i = next_++) {
    Status status = convert(slabs_[i], scratch);
    done_bytes_ += slabs_[i].bytes;
    if (status.ok() && on_progress != nullptr && *on_progress && !(*on_progress)(done_bytes_, total_bytes_)) {
      status = cancelled();
    }
    if (status.ok()) continue;
    stop_ = true;
    if (!failed_.exchange(true)) failure_ = status;
  }
}

Status Converter::run(int threads, const std::function<bool(uint64_t, uint64_t)>& on_progress) {
  std::vector<std::thread> helpers;
  for (int i = 1; i < threads; ++i) helpers.emplace_back([this] { work(nullptr); });
  work(&on_progress);
  for (std::thread& helper : helpers) helper.join();
  // The others may have left nothing for the caller's thread, which alone may ask.
  if (failure_.ok() && on_progress && !on_progress(done_bytes_, total_bytes_)) return cancelled();
  return failure_;
}

struct Kept {
  fs::path path;
  FileStamp stamp;
};

// Copies by last use, oldest first. Leftovers of makers that died (we hold the lock) are removed.
std::vector<Kept> kept_copies(const fs::path& folder) {
  std::vector<Kept> kept;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const std::optional<FileStamp> stamp = stamp_of(at->path());
    if (!stamp) continue;
    if (at->path().extension() == ".making") {
      std::error_code ignored;
      fs::remove(at->path(), ignored);
    } else if (at->path().extension() == ".gguf") {
      kept.push_back({at->path(), *stamp});
    }
  }
  std::sort(kept.begin(), kept.end(),
            [](const Kept& a, const Kept& b) { return a.stamp.modified_ns < b.stamp.modified_ns; });
  return kept;
}

Result<std::vector<fs::path>> make_room(const fs::path& folder, uint64_t bytes, uint64_t cap) {
  if (bytes > cap) {
    return make_error(ErrorKind::kTooLarge,
                      "the copy of the weights needs {} MB, but {} may hold {} MB: raise its cap",
                      bytes / 1000000 + 1, folder.string(), cap / 1000000);
  }
  const std::vector<Kept> kept = kept_copies(folder);
  uint64_t used = 0;
  for (const Kept& copy : kept) used += copy.stamp.bytes;
  std::vector<fs::path> removed;
  for (const Kept& copy : kept) {
    if (used + bytes <= cap) break;
    std::error_code code;
    fs::remove(copy.path, code);
    if (code) return make_system_error(code.value(), "cannot remove " + copy.path.string());
    used -= copy.stamp.bytes;
    removed.push_back(copy.path);
  }
  RH_TRY(const uint64_t space, free_space(folder));
  if (space < bytes + kReserveBytes) {
    return make_error(ErrorKind::kNoSpace,
                      "the copy of the weights needs {} MB in {}, but only {} MB are free",
                      (bytes + kReserveBytes) / 1000000 + 1, folder.string(), space / 1000000);
  }
  return removed;
}

// One hash for a model of one file or several.
Result<std::string> hash_of(const GgufFile& file, const fs::path& home) {
  std::string joined;
  for (const fs::path& part : file.files()) {
    RH_TRY(const std::string hash, known_hash(part, home));
    if (file.files().size() == 1) return hash;
    joined += hash;
  }
  return sha256(std::as_bytes(std::span(joined)));
}

Status write_copy(const GgufFile& file, CopyType type, const fs::path& target,
                  const WeightCopyOptions& options) {
  fs::path making = target;
  making += ".making";
  const auto write = [&]() -> Status {
    RH_TRY(File out, File::open_write(making));
    RH_TRY_STATUS(out.truncate(0));
    const std::string header = make_header(file, type);
    RH_TRY_STATUS(out.write_at(std::as_bytes(std::span(header)), 0));
    RH_TRY_STATUS(out.truncate(weight_copy_bytes(file, type)));
    const int threads = options.threads > 0 ? options.threads : usable_cores();
    RH_TRY_STATUS(Converter(file, type, out, header.size()).run(threads, options.on_progress));
    RH_TRY_STATUS(out.sync());
    RH_TRY_STATUS(out.close());
    RH_TRY(const GgufFile check, GgufFile::open(making));
    return rename_durably(making, target);
  };
  Status status = write();
  std::error_code ignored;
  if (!status.ok()) fs::remove(making, ignored);
  return status;
}

// The time of last use, for make_room.
void touch(const fs::path& path) {
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
}

}  // namespace

const char* to_string(CopyType type) {
  switch (type) {
    case CopyType::kBF16:
      return "bf16";
    case CopyType::kF16:
      return "f16";
    case CopyType::kF32:
      return "f32";
  }
  return "f32";
}

uint64_t weight_copy_bytes(const GgufFile& file, CopyType type) {
  uint64_t bytes = make_header(file, type).size();
  for (const GgufTensor& tensor : file.tensors()) bytes += padded(bytes_after(tensor, type));
  return bytes;
}

Result<WeightCopy> weight_copy(const fs::path& model, CopyType type, const WeightCopyOptions& options) {
  const fs::path home = options.home.empty() ? home_folder() : options.home;
  const fs::path folder = home / "weights";
  RH_TRY(const GgufFile file, GgufFile::open(model));
  const auto tensors = file.tensors();
  if (std::none_of(tensors.begin(), tensors.end(),
                   [&](const GgufTensor& t) { return is_converted(t, type); })) {
    return WeightCopy{model, file.file_bytes(), false, {}};
  }
  RH_TRY(const std::string hash, hash_of(file, home));
  WeightCopy copy;
  copy.path = folder / fmt::format("{}.{}.gguf", hash, to_string(type));
  copy.bytes = weight_copy_bytes(file, type);
  RH_TRY_STATUS(make_directories(folder));
  RH_TRY(const FileLock lock, FileLock::acquire(folder / ".lock", /*wait=*/true));
  const std::optional<FileStamp> there = stamp_of(copy.path);
  if (there && there->bytes == copy.bytes) {
    touch(copy.path);
    return copy;
  }
  RH_TRY(copy.removed, make_room(folder, copy.bytes, options.cap_bytes));
  RH_TRY_STATUS(write_copy(file, type, copy.path, options));
  copy.made = true;
  return copy;
}

bool cpu_has_bf16_dot_products() {
  const ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  if (device == nullptr) return false;
  const ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(device);
  const auto features = reinterpret_cast<ggml_backend_get_features_t>(
      ggml_backend_reg_get_proc_address(registry, "ggml_backend_get_features"));
  if (features == nullptr) return false;
  for (const ggml_backend_feature* feature = features(registry);
       feature != nullptr && feature->name != nullptr; ++feature) {
    const std::string_view name = feature->name;
    if ((name == "AVX512_BF16" || name == "AMX_BF16") && std::string_view(feature->value) == "1") return true;
  }
  return false;
}

}  // namespace rhapsode::model
