#include "io/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string_view>

#include "base/text_check.h"

namespace rhapsode {
namespace {

using Easy = std::unique_ptr<CURL, decltype(&curl_easy_cleanup)>;
using Url = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;
using List = std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)>;

bool library_ready() {
  static std::once_flag once;
  static bool ready = false;
  std::call_once(once, [] { ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK; });
  return ready;
}

std::string url_part(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, 0) != CURLUE_OK) return "";
  std::string copy(text);
  curl_free(text);
  return copy;
}

// State of one transfer, handed to libcurl's callbacks.
class Transfer {
 public:
  Transfer(const HttpRequest& request, CURL* easy) : request_(request), easy_(easy) {}

  size_t header(std::string_view line);
  size_t body(std::span<const std::byte> bytes);
  bool keep_going() const { return !request_.keep_going || request_.keep_going(); }
  Status outcome(CURLcode code, const char* detail) const;
  Status start();  // reports the headers once, before the first byte or at the end of an empty body

 private:
  Status refuse(long status) const;
  const HttpRequest& request_;
  CURL* easy_;
  HttpStart head_;
  std::optional<uint64_t> range_start_, range_total_;
  uint64_t received_ = 0;
  bool started_ = false;
  Status failure_;
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == '\r' || text.back() == '\n' || text.back() == ' '))
    text.remove_suffix(1);
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  return text;
}

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

std::optional<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

size_t Transfer::header(std::string_view line) {
  const size_t size = line.size();
  if (line.starts_with("HTTP/")) {  // a new answer after a redirect: forget the one before
    head_ = {};
    range_start_ = range_total_ = std::nullopt;
    return size;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return size;
  const std::string_view name = line.substr(0, colon);
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (same_name(name, "etag") && value.starts_with('"')) head_.etag = value;
  if (same_name(name, "content-type")) head_.content_type = value;
  if (same_name(name, "content-length")) head_.total = number(value);
  if (same_name(name, "content-range") && value.starts_with("bytes ")) {
    const std::string_view range = value.substr(6);
    range_start_ = number(range.substr(0, range.find('-')));
    const size_t slash = range.find('/');
    if (slash != std::string_view::npos) range_total_ = number(range.substr(slash + 1));
  }
  return size;
}

Status Transfer::refuse(long status) const {
  const std::string url = shown_url(request_.url);
  if (status == 404 || status == 410)
    return make_error(ErrorKind::kNotFound, "{} does not exist ({})", url, status);
  if (status == 401 || status == 403) {
    return make_error(ErrorKind::kPermission,
                      "{} may not be read without a login or an accepted licence ({})", url, status);
  }
  return make_error(ErrorKind::kNetwork, "the server of {} answered {}", url, status);
}

Status Transfer::start() {
  if (started_) return {};
  started_ = true;
  long status = 0;
  curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
  if (status == 206) {
    if (range_start_ != request_.offset) {
      return make_error(ErrorKind::kNetwork, "the server of {} sent another part than asked for",
                        shown_url(request_.url));
    }
    head_.offset = request_.offset;
    head_.total = range_total_;
  } else if (status == 416 && request_.offset > 0) {
    // Nothing lies behind the offset: the file shrank, or it was complete. The caller decides by its size.
    head_.offset = request_.offset;
    head_.total = range_total_;
  } else if (status != 200) {
    return refuse(status);
  }
  return request_.on_start ? request_.on_start(head_) : Status();
}

size_t Transfer::body(std::span<const std::byte> bytes) {
  if (failure_.ok()) failure_ = start();
  long status = 0;
  curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
  if (failure_.ok() && status != 416 && request_.on_body) failure_ = request_.on_body(bytes);
  received_ += bytes.size();
  return failure_.ok() ? bytes.size() : CURL_WRITEFUNC_ERROR;
}

Status Transfer::outcome(CURLcode code, const char* detail) const {
  if (!failure_.ok()) return failure_;
  if (code == CURLE_OK) return {};
  const std::string url = shown_url(request_.url);
  switch (code) {
    case CURLE_ABORTED_BY_CALLBACK:
      return make_error(ErrorKind::kCancelled, "the download of {} was cancelled", url);
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2_STREAM:
      return make_error(ErrorKind::kNetwork, "the connection to {} broke after {} bytes", url, received_);
    case CURLE_OPERATION_TIMEDOUT:
      return make_error(ErrorKind::kNetwork, "{} did not answer in time", url);
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
      return make_error(ErrorKind::kNetwork, "{} cannot be reached: is there a network? ({})", url,
                        curl_easy_strerror(code));
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return make_error(ErrorKind::kInvalidArgument, "{} is no HTTP or HTTPS address", url);
    default:
      return make_error(ErrorKind::kNetwork, "{} cannot be downloaded: {}", url,
                        detail[0] != '\0' ? shown(detail, 200) : curl_easy_strerror(code));
  }
}

size_t on_header(char* data, size_t, size_t size, void* transfer) {
  return static_cast<Transfer*>(transfer)->header({data, size});
}

size_t on_body(char* data, size_t, size_t size, void* transfer) {
  return static_cast<Transfer*>(transfer)->body(std::as_bytes(std::span(data, size)));
}

int on_progress(void* transfer, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Transfer*>(transfer)->keep_going() ? 0 : 1;
}

void set_trust(CURL* easy) {
  const char* bundle = std::getenv("CURL_CA_BUNDLE");
  if (bundle == nullptr || *bundle == '\0') bundle = std::getenv("SSL_CERT_FILE");
  if (bundle != nullptr && *bundle != '\0') curl_easy_setopt(easy, CURLOPT_CAINFO, bundle);
  const char* folder = std::getenv("SSL_CERT_DIR");
  if (folder != nullptr && *folder != '\0') curl_easy_setopt(easy, CURLOPT_CAPATH, folder);
}

List make_headers(const HttpRequest& request) {
  List list{nullptr, &curl_slist_free_all};
  std::vector<std::string> headers = request.headers;
  if (request.offset > 0) {
    headers.push_back(fmt::format("Range: bytes={}-", request.offset));
    if (!request.etag.empty()) headers.push_back("If-Range: " + request.etag);
  }
  for (const std::string& header : headers) {
    curl_slist* longer = curl_slist_append(list.get(), header.c_str());
    if (longer == nullptr) break;
    static_cast<void>(list.release());
    list.reset(longer);
  }
  return list;
}

void set_options(CURL* easy, const HttpRequest& request, Transfer& transfer) {
  const bool secure = request.url.starts_with("https:");
  curl_easy_setopt(easy, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(easy, CURLOPT_MAXREDIRS, 10L);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, static_cast<long>(request.connect_seconds));
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.stall_seconds));
  curl_easy_setopt(easy, CURLOPT_USERAGENT, "rhapsode");
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &on_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &on_body);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, &on_progress);
  curl_easy_setopt(easy, CURLOPT_XFERINFODATA, &transfer);
  set_trust(easy);
}

}  // namespace

Status http_get(const HttpRequest& request) {
  Easy easy{library_ready() ? curl_easy_init() : nullptr, &curl_easy_cleanup};
  if (!easy) return make_error(ErrorKind::kInternal, "libcurl cannot start");
  Transfer transfer(request, easy.get());
  set_options(easy.get(), request, transfer);
  const List headers = make_headers(request);
  curl_easy_setopt(easy.get(), CURLOPT_HTTPHEADER, headers.get());
  char detail[CURL_ERROR_SIZE] = {};
  curl_easy_setopt(easy.get(), CURLOPT_ERRORBUFFER, detail);
  const CURLcode code = curl_easy_perform(easy.get());
  RH_TRY_STATUS(transfer.outcome(code, detail));
  return transfer.start();
}

Result<HttpDocument> http_get_document(HttpRequest request, uint64_t limit) {
  HttpDocument document;
  request.on_start = [&](const HttpStart& start) -> Status {
    document.content_type = start.content_type;
    return {};
  };
  request.on_body = [&](std::span<const std::byte> bytes) -> Status {
    if (document.body.size() + bytes.size() > limit) {
      return make_error(ErrorKind::kTooLarge, "{} has more than {} bytes", shown_url(request.url), limit);
    }
    document.body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  };
  RH_TRY_STATUS(http_get(request));
  return document;
}

std::string shown_url(const std::string& url) {
  const Url parsed{curl_url(), &curl_url_cleanup};
  if (!parsed || curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK)
    return shown(url, 200);
  for (const CURLUPart part : {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_QUERY, CURLUPART_FRAGMENT}) {
    curl_url_set(parsed.get(), part, nullptr, 0);
  }
  return shown(url_part(parsed.get(), CURLUPART_URL), 200);
}

std::optional<std::string> resolve_url(const std::string& base, const std::string& reference) {
  const Url url{curl_url(), &curl_url_cleanup};
  if (!url || curl_url_set(url.get(), CURLUPART_URL, base.c_str(), 0) != CURLUE_OK) return std::nullopt;
  if (curl_url_set(url.get(), CURLUPART_URL, reference.c_str(), 0) != CURLUE_OK) return std::nullopt;
  curl_url_set(url.get(), CURLUPART_FRAGMENT, nullptr, 0);
  return url_part(url.get(), CURLUPART_URL);
}

}  // namespace rhapsode
