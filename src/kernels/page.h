// Pages: 64 token slots of keys and values, the unit in which attention reads memory.
//
// A *page block* holds the same 64 slots in every layer, layer-major, so that one allocation, one read from
// disk and one reference count serve a run of tokens; a *page* is one layer of it. Inside a page (count K/V
// heads H, head dimension d, 64 slots; e = bytes an element):
//
//   K        [H][4][d][16]   e    sixteen slots side by side for each dimension
//   (docs/decisions/0002-blocked-keys.md) V        [H][64][d]      e K scale  [H][64]         f32  int8 pages
//   only: value = int8 * scale V scale  [H][64]         f32  int8 pages only
//
// Keys are stored rotated at the slot's *frame position*, once and for ever; readers rotate the query
// instead. Ownership: a Page points into storage that store/page_pool owns; whoever holds a Page* holds a pin
// on the block. Threads: immutable once sealed. An unsealed page is written by one sequence only, slots
// [count, 64).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rhapsode::kernels {

inline constexpr int kPageTokens = 64;
inline constexpr int kKeyGroup = 16;  // slots that lie side by side in K

enum class KvType : uint8_t { kF32, kF16, kBF16, kI8 };

const char* to_string(KvType type);
int element_bytes(KvType type);

// What decides the bytes of a page: the same for every block of a pool.
struct KvShape {
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;  // a multiple of 16, at most 256
  KvType type = KvType::kF16;

  size_t k_bytes() const;      // K of one page
  size_t v_bytes() const;      // V of one page
  size_t scale_bytes() const;  // both scale arrays of one page; 0 unless int8
  size_t page_bytes() const;   // one layer, padded to 64 bytes
  size_t block_bytes() const { return page_bytes() * static_cast<size_t>(layers); }
  bool operator==(const KvShape&) const = default;
};

// What block-sparse readers keep beside a page (page_bounds.h). A cache: readers of a const Page may fill it.
struct PageBounds {
  std::byte* data = nullptr;
  int32_t slots = 0;   // they hold for slots below; 0: none computed yet
  int32_t layers = 0;  // and in layers below
};

struct Page {
  std::byte* data = nullptr;                     // the block: layer l starts at data + l * shape.page_bytes()
  int32_t count = 0;                             // slots filled so far
  bool consecutive = true;                       // positions[j] == positions[0] + j
  std::array<int32_t, kPageTokens> positions{};  // frame position of each slot
  PageBounds* bounds = nullptr;                  // null: the page has no room for them
  int32_t device = 0;    // whose memory the block lies in, of those that a sharded back end computes on
  uint64_t arrival = 0;  // of copies into it that passes may have to wait for (page_memory.h); 0: of none
};

// The mask of slots [0, count).
constexpr uint64_t first_slots(int count) {
  return count >= kPageTokens ? ~0ull : (1ull << count) - 1;
}

// Pointers to one layer and one KV head of a page.
struct PageHeadView {
  std::byte* k;
  std::byte* v;
  float* k_scale;  // null unless int8
  float* v_scale;
};
PageHeadView page_head(const KvShape& shape, const Page& page, int layer, int kv_head);

// Index of (slot, dimension) in the K of one head.
constexpr size_t key_index(int head_dim, int slot, int dimension) {
  return static_cast<size_t>(slot / kKeyGroup) * head_dim * kKeyGroup +
         static_cast<size_t>(dimension) * kKeyGroup + slot % kKeyGroup;
}

}  // namespace rhapsode::kernels
