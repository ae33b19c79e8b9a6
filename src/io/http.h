// Downloads over HTTP and HTTPS (libcurl), resumable and cancellable.
//
// Trust: certificates are always verified, against $CURL_CA_BUNDLE or $SSL_CERT_FILE (and $SSL_CERT_DIR)
// where set, else the system's; redirects stay on HTTP(S) and never leave HTTPS. Proxies come from the usual
// *_proxy variables. Errors, in one sentence, with the URL without its user, password and query: kNotFound
// (404, 410), kPermission (401, 403), kNetwork (everything else that may go away by itself), kCancelled, or
// what a callback returned. Threads: calls are independent; callbacks run on the caller's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace rhapsode {

// What the server said before the body.
struct HttpStart {
  uint64_t offset = 0;            // where the body begins: 0 when the server sends the whole file (again)
  std::optional<uint64_t> total;  // size of the whole file, when the server says it
  std::string etag;               // strong validators only; empty otherwise
  std::string content_type;
};

struct HttpRequest {
  std::string url;
  std::vector<std::string> headers;  // "Accept: application/json"
  uint64_t offset = 0;               // resume here ...
  std::string etag;                  // ... if the file is still this one
  std::function<Status(const HttpStart&)> on_start;
  std::function<Status(std::span<const std::byte>)> on_body;
  std::function<bool()> keep_going;  // asked often, also while nothing arrives; false cancels
  int connect_seconds = 20;
  int stall_seconds = 60;  // give up when nothing arrives for so long
};

Status http_get(const HttpRequest& request);

// A small document; more than `limit` bytes is kTooLarge.
struct HttpDocument {
  std::string body;
  std::string content_type;
};
Result<HttpDocument> http_get_document(HttpRequest request, uint64_t limit);

// The URL as it may be shown: without user, password, query and fragment.
std::string shown_url(const std::string& url);
// `reference` as a link in the document at `base`: an absolute URL, or nothing when either is malformed.
std::optional<std::string> resolve_url(const std::string& base, const std::string& reference);

}  // namespace rhapsode
