#include "server/http_server.h"

#include <civetweb.h>
#include <spdlog/spdlog.h>

#include <cstring>
#include <utility>

#include "server/text.h"

namespace memcgd::server {

struct HttpServer::Civetweb {
  ~Civetweb() { mg_stop(context); }

  static int Answer(mg_connection* connection);

  mg_context* context = nullptr;
};

namespace {

// What an answer may bring along for the next; more is given back.
constexpr size_t kMaxKeptBytes = size_t{64} << 20;

std::string_view ReasonOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
  }
  return "Error";
}

// Pages get nothing but from here, and run nothing that is written in them.
constexpr std::string_view kHeaders =
    "Cache-Control: no-store\r\n"
    "Content-Security-Policy: default-src 'none'; connect-src 'self'; img-src 'self'; script-src 'self'; "
    "style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Connection: close\r\n";

void Write(mg_connection* connection, const HttpAnswer& answer, bool head_only) {
  const std::string head =
      Cat("HTTP/1.1 ", answer.status, " ", ReasonOf(answer.status), "\r\n", kHeaders,
          answer.status == 405 ? "Allow: GET, HEAD\r\n" : "", "Content-Type: ", answer.content_type,
          "\r\nContent-Length: ", answer.body.size(), "\r\n\r\n");
  mg_write(connection, head.data(), head.size());
  if (!head_only) mg_write(connection, answer.body.data(), answer.body.size());
}

int Log(const mg_connection*, const char* message) {
  spdlog::debug("http: {}", message);
  return 1;  // not to a file of its own
}

}  // namespace

std::optional<std::string> HttpRequest::Parameter(const char* name) const {
  constexpr size_t kMostBytes = 16384;
  std::string value(kMostBytes + 1, '\0');
  const int length = mg_get_var(query.data(), query.size(), name, value.data(), value.size());
  if (length < 0) return std::nullopt;
  value.resize(static_cast<size_t>(length));
  return value;
}

int HttpServer::Civetweb::Answer(mg_connection* connection) {
  thread_local std::string kept;
  const mg_request_info& info = *mg_get_request_info(connection);
  const auto& handlers = *static_cast<const Handlers*>(info.user_data);
  const std::string_view method = info.request_method;
  const auto handler = handlers.find(std::string_view(info.local_uri == nullptr ? "" : info.local_uri));
  HttpAnswer answer{.body = std::move(kept)};
  answer.body.clear();
  if (method != "GET" && method != "HEAD") {
    answer.status = 405;
    answer.body += "only GET and HEAD are answered\n";
  } else if (handler == handlers.end()) {
    answer.status = 404;
    answer.body += "there is:\n";
    for (const auto& [path, unused] : handlers) answer.body += Cat(path, "\n");
  } else {
    handler->second({.query = info.query_string == nullptr ? "" : info.query_string}, &answer);
  }
  Write(connection, answer, method == "HEAD");
  if (answer.body.capacity() <= kMaxKeptBytes) kept = std::move(answer.body);
  return answer.status;
}

HttpServer::HttpServer(const ListenAddress& address, Handlers handlers)
    : address_(address), handlers_(std::move(handlers)), civetweb_(std::make_unique<Civetweb>()) {}

HttpServer::~HttpServer() = default;

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const ListenAddress& address,
                                                              Handlers handlers) {
  static const unsigned library = mg_init_library(MG_FEATURES_DEFAULT);
  static_cast<void>(library);
  std::unique_ptr<HttpServer> server(new HttpServer(address, std::move(handlers)));
  // More threads than a browser has connections, so that a page does not keep a scrape waiting.
  const std::string listen = address.Text();
  const char* options[] = {"listening_ports",
                           listen.c_str(),
                           "num_threads",
                           "8",
                           "request_timeout_ms",
                           "10000",
                           "keep_alive_timeout_ms",
                           "500",
                           "tcp_nodelay",
                           "1",
                           nullptr};
  mg_callbacks callbacks{};
  callbacks.begin_request = Civetweb::Answer;
  callbacks.log_message = Log;
  callbacks.log_access = Log;
  server->civetweb_->context = mg_start(&callbacks, const_cast<Handlers*>(&server->handlers_), options);
  if (server->civetweb_->context == nullptr) {
    return absl::UnavailableError(Cat("cannot listen on ", address.Text(),
                                      " for metrics: ", WhyNotBound(address, "civetweb does not say why")));
  }
  mg_server_port port{};
  if (mg_get_server_ports(server->civetweb_->context, 1, &port) > 0) {
    server->address_.port = static_cast<uint16_t>(port.port);
  }
  return server;
}

}  // namespace memcgd::server
