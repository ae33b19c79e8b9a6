// An HTTP server on a free local port that misbehaves on purpose: for tests of downloads.
// Every resource says what it serves and how: with ranges and an ETag or without, breaking off after some
// bytes, or with another status. Requests are logged. One thread; the destructor stops it.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace rhapsode::test {

struct Resource {
  std::string body = {};
  int status = 200;
  std::string etag = {};  // with quotes; empty: none
  bool ranges = true;
  std::vector<uint64_t> breaks = {};  // the n-th request is cut after so many body bytes
  std::string content_type = "application/octet-stream";
  std::string location = {};  // of a redirect
  int delay_ms = 0;           // before each 64 KiB
};

struct SeenRequest {
  std::string path;
  std::string range;  // value of the header, empty: none
  std::string if_range;
};

class TinyHttpServer {
 public:
  TinyHttpServer();
  ~TinyHttpServer();
  TinyHttpServer(const TinyHttpServer&) = delete;
  TinyHttpServer& operator=(const TinyHttpServer&) = delete;

  void serve(const std::string& path, Resource resource);
  std::string url(const std::string& path) const;
  std::vector<SeenRequest> seen() const;
  std::vector<SeenRequest> seen(const std::string& path) const;

 private:
  void loop();
  void answer(int connection);
  void send_body(int connection, const Resource& resource, uint64_t offset, uint64_t limit) const;

  int socket_ = -1;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::map<std::string, Resource> resources_;
  std::map<std::string, size_t> served_;
  std::vector<SeenRequest> seen_;
  std::thread thread_;
};

}  // namespace rhapsode::test
