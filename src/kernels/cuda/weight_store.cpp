#include "kernels/cuda/weight_store.h"

#include <ggml.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "kernels/cuda/cuda_error.h"
#include "kernels/element.h"

namespace rhapsode::kernels::cuda {

namespace {

constexpr size_t kStagingBytes = 64 << 20;

// One row of a file's tensor as float32.
void widen_row(ggml_type type, const std::byte* from, float* to, int64_t columns) {
  if (type == GGML_TYPE_F32) {
    std::memcpy(to, from, static_cast<size_t>(columns) * sizeof(float));
  } else {
    ggml_get_type_traits(type)->to_float(from, to, columns);
  }
}

struct Conversion {
  ggml_type type;
  Element element;
  int64_t columns;
  size_t source_row_bytes;

  size_t row_bytes() const { return static_cast<size_t>(columns) * element_bytes(element); }
};

void convert_rows(const Conversion& conversion, const std::byte* from, std::byte* to, int64_t rows) {
  std::vector<float> wide(static_cast<size_t>(conversion.columns));
  for (int64_t row = 0; row < rows; ++row) {
    widen_row(conversion.type, from, wide.data(), conversion.columns);
    if (conversion.element == Element::kF32) {
      std::memcpy(to, wide.data(), conversion.row_bytes());
    } else {
      auto* narrow = reinterpret_cast<uint16_t*>(to);
      for (size_t i = 0; i < wide.size(); ++i) narrow[i] = f32_to_bf16(wide[i]);
    }
    from += conversion.source_row_bytes;
    to += conversion.row_bytes();
  }
}

void convert_on_threads(const Conversion& conversion, const std::byte* from, std::byte* to, int64_t rows,
                        int threads) {
  constexpr int64_t kLeastElements = 1 << 18;  // less is not worth a thread
  const int64_t useful = std::max<int64_t>(1, rows * conversion.columns / kLeastElements);
  const int64_t parts = std::min<int64_t>(useful, threads);
  std::vector<std::thread> team;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t begin = rows * part / parts;
    const int64_t end = rows * (part + 1) / parts;
    const auto work = [&, begin, end] {
      convert_rows(conversion, from + static_cast<size_t>(begin) * conversion.source_row_bytes,
                   to + static_cast<size_t>(begin) * conversion.row_bytes(), end - begin);
    };
    if (part + 1 < parts) {
      team.emplace_back(work);
    } else {
      work();
    }
  }
  for (std::thread& thread : team) thread.join();
}

// Vectors are read as float32; F32 and F16 matrices keep all of their bits.
Element element_of(ggml_type type, WeightUse use) {
  const bool exact = type == GGML_TYPE_F32 || type == GGML_TYPE_F16;
  return use == WeightUse::kVector || exact ? Element::kF32 : Element::kBF16;
}

}  // namespace

Status WeightStore::upload(const WeightSource& source, Element element, DeviceBuffer& buffer) {
  const auto type = static_cast<ggml_type>(source.type);
  const Conversion conversion{type, element, source.columns, ggml_row_size(type, source.columns)};
  const size_t bytes = conversion.row_bytes() * static_cast<size_t>(source.rows);
  RH_TRY_STATUS(buffer.allocate(bytes, "the weights"));
  if (!staging_) staging_ = std::make_unique<PinnedBuffer>();
  RH_TRY_STATUS(staging_->reserve(std::max(kStagingBytes, conversion.row_bytes()), "loading weights"));
  const auto rows_at_once =
      static_cast<int64_t>(staging_->bytes() / std::max<size_t>(1, conversion.row_bytes()));
  for (int64_t row = 0; row < source.rows; row += rows_at_once) {
    const int64_t rows = std::min(rows_at_once, source.rows - row);
    convert_on_threads(conversion,
                       source.data.data() + static_cast<size_t>(row) * conversion.source_row_bytes,
                       staging_->data(), rows, threads_);
    RH_TRY_STATUS(check(
        cudaMemcpy(buffer.at<std::byte>(static_cast<size_t>(row) * conversion.row_bytes()), staging_->data(),
                   static_cast<size_t>(rows) * conversion.row_bytes(), cudaMemcpyHostToDevice),
        "copying weights to the GPU"));
  }
  bytes_ += bytes;
  return {};
}

Result<Weight> WeightStore::add(const WeightSource& source, WeightUse use) {
  const auto type = static_cast<ggml_type>(source.type);
  if (type != GGML_TYPE_F32 && !ggml_get_type_traits(type)->to_float) {
    return make_error(ErrorKind::kUnsupported, "tensor '{}' has type {}, which cannot be multiplied",
                      source.name, ggml_type_name(type));
  }
  const Element element = element_of(type, use);
  rounds_to_bf16_ |= use == WeightUse::kMatrix && element == Element::kBF16;
  const auto number = static_cast<int>(places_.size());
  const auto [known, fresh] =
      by_source_.try_emplace({source.data.data(), source.columns, source.rows, element}, number);
  if (fresh) {
    auto buffer = std::make_shared<DeviceBuffer>();
    RH_TRY_STATUS(upload(source, element, *buffer));
    places_.push_back({std::move(buffer), 0});
  } else {
    places_.push_back(places_[known->second]);
  }
  shapes_.push_back({source.columns, source.rows, element});
  return Weight{number};
}

Result<int> WeightStore::join(std::span<const int> parts, std::span<const int64_t> rows) {
  const std::vector<int> key(parts.begin(), parts.end());
  if (const auto known = joins_.find(key); known != joins_.end()) return known->second;
  const auto present = std::find_if(parts.begin(), parts.end(), [](int part) { return part >= 0; });
  // A vector is one row of many columns; as a part of a joined one each of its elements is a row.
  const bool vectors = shapes_[*present].rows == 1;
  WeightShape shape{vectors ? 1 : shapes_[*present].columns, 0, shapes_[*present].element};
  for (const int64_t count : rows) shape.rows += count;
  const size_t row_bytes = static_cast<size_t>(shape.columns) * element_bytes(shape.element);
  auto buffer = std::make_shared<DeviceBuffer>();
  RH_TRY_STATUS(buffer->allocate(static_cast<size_t>(shape.rows) * row_bytes, "joined weights"));
  RH_TRY_STATUS(check(cudaMemset(buffer->as<void>(), 0, buffer->bytes()), "clearing joined weights"));
  size_t offset = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t bytes = static_cast<size_t>(rows[i]) * row_bytes;
    if (parts[i] >= 0) {
      RH_TRY_STATUS(
          check(cudaMemcpy(buffer->at<void>(offset), at(parts[i]).data, bytes, cudaMemcpyDeviceToDevice),
                "joining weights"));
      places_[parts[i]] = {buffer, offset};
    }
    offset += bytes;
  }
  const auto number = static_cast<int>(places_.size());
  places_.push_back({std::move(buffer), 0});
  shapes_.push_back(shape);
  joins_.emplace(key, number);
  return number;
}

}  // namespace rhapsode::kernels::cuda
