#include "store/word_lists.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "store/compressed.h"

namespace rhapsode::store {
namespace {

constexpr uint64_t kMostListBytes = 256ull << 20;  // of one passage, unpacked

void append_encoded(std::string_view term, std::string& out) {
  static constexpr char kDigits[] = "0123456789abcdef";
  for (const char c : term) {
    const auto byte = static_cast<unsigned char>(c);
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || byte >= 0x80) {
      out += c;
    } else {
      out += '_';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
}

}  // namespace

std::string encode_terms(std::span<const std::string> terms) {
  std::string encoded;
  for (const std::string& term : terms) {
    if (term.empty()) continue;
    if (!encoded.empty()) encoded += ' ';
    append_encoded(term, encoded);
  }
  return encoded;
}

std::string any_term_query(std::span<const std::string> terms) {
  std::string query;
  std::set<std::string_view> seen;
  for (const std::string& term : terms) {
    if (term.empty() || !seen.insert(term).second) continue;
    if (!query.empty()) query += " OR ";
    query += '"';
    append_encoded(term, query);
    query += '"';
  }
  return query;
}

Result<std::vector<std::byte>> pack_terms(std::string_view encoded) {
  return compress(encoded);
}

Result<std::string> unpack_terms(std::span<const std::byte> packed) {
  return decompress(packed, kMostListBytes);
}

// Differences as variable-length integers: seven bits a byte, the lowest first.
Result<std::vector<std::byte>> pack_tokens(std::span<const int32_t> tokens) {
  std::vector<int32_t> sorted(tokens.begin(), tokens.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  if (!sorted.empty() && sorted.front() < 0) {
    return make_error(ErrorKind::kInvalidArgument, "{} is no token", sorted.front());
  }
  std::vector<std::byte> packed;
  int32_t last = 0;
  for (const int32_t token : sorted) {
    auto step = static_cast<uint32_t>(token - last);
    for (; step >= 0x80; step >>= 7) packed.push_back(static_cast<std::byte>((step & 0x7f) | 0x80));
    packed.push_back(static_cast<std::byte>(step));
    last = token;
  }
  return packed;
}

Result<std::vector<int32_t>> unpack_tokens(std::span<const std::byte> packed) {
  std::vector<int32_t> tokens;
  uint64_t value = 0;
  uint64_t step = 0;
  int shift = 0;
  for (const std::byte byte : packed) {
    step |= static_cast<uint64_t>(byte & std::byte{0x7f}) << shift;
    if ((byte & std::byte{0x80}) != std::byte{0}) {
      shift += 7;
      if (shift <= 28) continue;
    }
    value += step;
    if (shift > 28 || value > INT32_MAX)
      return make_error(ErrorKind::kCorrupt, "the catalog's list of tokens is damaged");
    tokens.push_back(static_cast<int32_t>(value));
    step = 0;
    shift = 0;
  }
  if (shift != 0) return make_error(ErrorKind::kCorrupt, "the catalog's list of tokens is cut short");
  return tokens;
}

}  // namespace rhapsode::store
