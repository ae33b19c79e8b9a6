#include "base/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>

namespace rhapsode {

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  bool ok = evp != nullptr && EVP_DigestInit_ex(evp, EVP_sha256(), nullptr) == 1;
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  if (context_->ok) context_->ok = EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()) == 1;
}

Result<std::string> Sha256::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (!context_->ok || EVP_DigestFinal_ex(context_->evp, digest.data(), &size) != 1 || size != 32) {
    return make_error(ErrorKind::kInternal, "libcrypto cannot compute SHA-256 here");
  }
  context_->ok = false;
  return fmt::format("{:02x}", fmt::join(digest.begin(), digest.begin() + size, ""));
}

Result<std::string> sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace rhapsode
