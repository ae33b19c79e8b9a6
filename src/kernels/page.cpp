#include "kernels/page.h"

namespace rhapsode::kernels {
namespace {

constexpr size_t kPageAlignment = 64;

}  // namespace

const char* to_string(KvType type) {
  switch (type) {
    case KvType::kF32:
      return "f32";
    case KvType::kF16:
      return "f16";
    case KvType::kBF16:
      return "bf16";
    case KvType::kI8:
      return "int8";
  }
  return "unknown";
}

int element_bytes(KvType type) {
  switch (type) {
    case KvType::kF32:
      return 4;
    case KvType::kF16:
      return 2;
    case KvType::kBF16:
      return 2;
    case KvType::kI8:
      return 1;
  }
  return 0;
}

size_t KvShape::k_bytes() const {
  return static_cast<size_t>(kv_heads) * kPageTokens * static_cast<size_t>(head_dim) *
         static_cast<size_t>(element_bytes(type));
}

size_t KvShape::v_bytes() const {
  return k_bytes();
}

size_t KvShape::scale_bytes() const {
  if (type != KvType::kI8) return 0;
  return 2 * static_cast<size_t>(kv_heads) * kPageTokens * sizeof(float);
}

size_t KvShape::page_bytes() const {
  const size_t bytes = k_bytes() + v_bytes() + scale_bytes();
  return (bytes + kPageAlignment - 1) / kPageAlignment * kPageAlignment;
}

PageHeadView page_head(const KvShape& shape, const Page& page, int layer, int kv_head) {
  std::byte* base = page.data + static_cast<size_t>(layer) * shape.page_bytes();
  const auto head = static_cast<size_t>(kv_head);
  const size_t head_bytes = shape.k_bytes() / static_cast<size_t>(shape.kv_heads);
  PageHeadView view{base + head * head_bytes, base + shape.k_bytes() + head * head_bytes, nullptr, nullptr};
  if (shape.type == KvType::kI8) {
    auto* scales = reinterpret_cast<float*>(base + shape.k_bytes() + shape.v_bytes());
    view.k_scale = scales + head * kPageTokens;
    view.v_scale = scales + (static_cast<size_t>(shape.kv_heads) + head) * kPageTokens;
  }
  return view;
}

}  // namespace rhapsode::kernels
