// Plain types that host and device code share. No header of the library's own results here: nvcc need not
// read them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rhapsode::kernels::cuda {

enum class Element : uint8_t { kF32, kBF16 };
constexpr size_t element_bytes(Element element) {
  return element == Element::kF32 ? 4 : 2;
}

// A value on the device and its element.
struct DeviceValue {
  void* data = nullptr;
  Element element = Element::kF32;
};
struct DeviceInput {
  const void* data = nullptr;
  Element element = Element::kF32;
};

}  // namespace rhapsode::kernels::cuda
