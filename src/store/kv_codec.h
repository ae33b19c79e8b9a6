// KV codecs: the pages of one passage to the bytes of one extent, and back.
//
// An extent is layer-major and trimmed to the tokens there are, so that a reader may fetch layer by layer:
// header, then for each layer the pages in order, for each page and KV head K and V (docs/formats/kv.md). The
// identity codec keeps the pool's element type bit by bit; kI8 stores int8 with a float32 scale a token and
// head (the largest error is half a step: max|x| / 254). The frame positions are consecutive from 0.
// Errors: kCorrupt when sizes in the header disagree with the bytes; kUnsupported when the extent's type
// cannot become the pool's. Threads: any. Cost: one pass over the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/page.h"

namespace rhapsode::store {

// Bytes that encode_kv() gives for `tokens` tokens.
size_t kv_extent_bytes(const kernels::KvShape& shape, kernels::KvType stored, int tokens);

// `pages` hold `tokens` tokens at frame positions 0, 1, ...; all but the last are full. `stored` is
// shape.type or kI8.
Result<std::vector<std::byte>> encode_kv(const kernels::KvShape& shape, kernels::KvType stored,
                                         std::span<const kernels::Page* const> pages, int tokens);

// Gives the next so many bytes of an extent, which stay until the next call.
using KvSource = std::function<Result<std::span<const std::byte>>(size_t bytes)>;

// Fills empty pages (as many as needed) and sets their counts and positions: from a source of `extent_bytes`,
// layer by layer, so that what is read is still near when it is copied. The source may be damaged: that is
// for the caller to find out, and then the pages hold nothing.
Status decode_kv(const kernels::KvShape& shape, const KvSource& source, uint64_t extent_bytes,
                 std::span<kernels::Page* const> pages, int tokens);
// From the whole of it.
Status decode_kv(const kernels::KvShape& shape, std::span<const std::byte> extent,
                 std::span<kernels::Page* const> pages, int tokens);

}  // namespace rhapsode::store
