// GET and HEAD over HTTP: each path has a handler.  The only file pair that knows civetweb.
//
// Thread safety: Start() and destruction by one thread; handlers run on threads of the server, several at
// once.
#ifndef MEMCGD_SERVER_HTTP_SERVER_H_
#define MEMCGD_SERVER_HTTP_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/listen_address.h"

namespace memcgd::server {

struct HttpRequest {
  std::string_view query;  // as it was sent, behind the '?'
  // The decoded value of a parameter; none where it is not there, or longer than 16 KiB.
  std::optional<std::string> Parameter(const char* name) const;
};

struct HttpAnswer {
  int status = 200;
  std::string_view content_type = "text/plain; charset=utf-8";
  std::string body = {};  // comes with the capacity of an earlier one: to be appended to
};

class HttpServer {
 public:
  using Handler = std::function<void(const HttpRequest& request, HttpAnswer* answer)>;
  using Handlers = std::map<std::string, Handler, std::less<>>;  // by path

  // UNAVAILABLE says why the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const ListenAddress& address, Handlers handlers);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // With the port that was bound.
  const ListenAddress& address() const { return address_; }

 private:
  struct Civetweb;
  HttpServer(const ListenAddress& address, Handlers handlers);

  ListenAddress address_;
  const Handlers handlers_;
  std::unique_ptr<Civetweb> civetweb_;
};

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_HTTP_SERVER_H_
