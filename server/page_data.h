// The live page: its files, and the JSON that it asks for; docs/page.md describes both.
//
// Thread safety: all of it.
#ifndef MEMCGD_SERVER_PAGE_DATA_H_
#define MEMCGD_SERVER_PAGE_DATA_H_

#include <atomic>

#include "server/http_server.h"
#include "server/node_registry.h"

namespace memcgd::server {

class PageData {
 public:
  explicit PageData(NodeRegistry* registry) : registry_(*registry) {}

  // From here on answers say that the server stops.
  void Drain() { draining_.store(true, std::memory_order_relaxed); }

  void Nodes(const HttpRequest& request, HttpAnswer* answer);
  void Cgroups(const HttpRequest& request, HttpAnswer* answer);
  void Ooms(const HttpRequest& request, HttpAnswer* answer);
  void Streams(const HttpRequest& request, HttpAnswer* answer);

 private:
  NodeRegistry& registry_;
  std::atomic<bool> draining_{false};  // relaxed: it orders nothing
};

// Those of the page's files and of its data, by path.  `data` lives longer.
HttpServer::Handlers PageHandlers(PageData* data);

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_PAGE_DATA_H_
