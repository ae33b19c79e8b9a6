#include "support/tiny_http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace rhapsode::test {
namespace {

std::string header_of(const std::string& request, const std::string& name) {
  const size_t at = request.find("\r\n" + name + ": ");
  if (at == std::string::npos) return "";
  const size_t start = at + 4 + name.size();
  return request.substr(start, request.find("\r\n", start) - start);
}

bool send_all(int connection, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t count = ::send(connection, data, size, MSG_NOSIGNAL);
    if (count <= 0) return false;
    data += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

}  // namespace

TinyHttpServer::TinyHttpServer() {
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(socket_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(socket_, 16) != 0 ||
      ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("no local port for the test server");
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { loop(); });
}

TinyHttpServer::~TinyHttpServer() {
  ::shutdown(socket_, SHUT_RDWR);
  thread_.join();
  ::close(socket_);
}

void TinyHttpServer::serve(const std::string& path, Resource resource) {
  const std::lock_guard lock(mutex_);
  resources_[path] = std::move(resource);
  served_[path] = 0;
}

std::string TinyHttpServer::url(const std::string& path) const {
  return fmt::format("http://127.0.0.1:{}{}", port_, path);
}

std::vector<SeenRequest> TinyHttpServer::seen() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

std::vector<SeenRequest> TinyHttpServer::seen(const std::string& path) const {
  std::vector<SeenRequest> matching = seen();
  std::erase_if(matching, [&](const SeenRequest& request) { return request.path != path; });
  return matching;
}

void TinyHttpServer::loop() {
  while (true) {
    const int connection = ::accept(socket_, nullptr, nullptr);
    if (connection < 0) return;
    answer(connection);
    ::shutdown(connection, SHUT_WR);
    ::close(connection);
  }
}

void TinyHttpServer::answer(int connection) {
  std::string request;
  char buffer[4096];
  while (request.find("\r\n\r\n") == std::string::npos) {
    const ssize_t count = ::recv(connection, buffer, sizeof buffer, 0);
    if (count <= 0) return;
    request.append(buffer, static_cast<size_t>(count));
  }
  const size_t start = request.find(' ') + 1;
  const std::string path = request.substr(start, request.find_first_of(" ?", start) - start);
  const std::string range = header_of(request, "Range");
  const std::string if_range = header_of(request, "If-Range");
  Resource resource;
  uint64_t limit = UINT64_MAX;
  {
    const std::lock_guard lock(mutex_);
    seen_.push_back({path, range, if_range});
    const auto found = resources_.find(path);
    if (found == resources_.end()) {
      resource.status = 404;
    } else {
      resource = found->second;
      const size_t turn = served_[path]++;
      if (turn < resource.breaks.size()) limit = resource.breaks[turn];
    }
  }
  const uint64_t size = resource.body.size();
  uint64_t offset = 0;
  const bool resumes = resource.status == 200 && resource.ranges && range.starts_with("bytes=") &&
                       (if_range.empty() || if_range == resource.etag);
  std::string head;
  if (resumes) {
    offset = std::stoull(range.substr(6));
    head = offset < size ? fmt::format("HTTP/1.1 206 Partial\r\nContent-Range: bytes {}-{}/{}\r\n", offset,
                                       size - 1, size)
                         : fmt::format("HTTP/1.1 416 No\r\nContent-Range: bytes */{}\r\n", size);
    offset = std::min(offset, size);
  } else {
    head = fmt::format("HTTP/1.1 {} Status\r\n", resource.status);
  }
  if (!resource.etag.empty()) head += "ETag: " + resource.etag + "\r\n";
  if (!resource.location.empty()) head += "Location: " + resource.location + "\r\n";
  head += fmt::format("Content-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                      resource.content_type, size - offset);
  if (send_all(connection, head.data(), head.size())) send_body(connection, resource, offset, limit);
}

void TinyHttpServer::send_body(int connection, const Resource& resource, uint64_t offset,
                               uint64_t limit) const {
  const uint64_t end =
      std::min<uint64_t>(resource.body.size(), limit < UINT64_MAX - offset ? offset + limit : limit);
  for (uint64_t at = offset; at < end; at += 65536) {
    if (resource.delay_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(resource.delay_ms));
    if (!send_all(connection, resource.body.data() + at, std::min<uint64_t>(65536, end - at))) return;
  }
}

}  // namespace rhapsode::test
