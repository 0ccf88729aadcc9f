#include "server/port_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "server/text.h"

namespace memcgd::server {

absl::Status WritePortFile(const std::string& file, std::string_view listen, std::string_view metrics_listen,
                           std::string_view health_listen) {
  const std::string unfinished = Cat(file, ".", getpid(), ".tmp");
  std::ofstream out(unfinished, std::ios::trunc);
  out << "listen=" << listen << "\nmetrics-listen=" << metrics_listen << "\nhealth-listen=" << health_listen
      << "\n";
  out.close();
  if (out.good() && std::rename(unfinished.c_str(), file.c_str()) == 0) return absl::OkStatus();
  const int error = errno;
  unlink(unfinished.c_str());
  return absl::UnavailableError(Cat("cannot write port file ", file, ": ", std::strerror(error)));
}

void RemovePortFile(const std::string& file) { unlink(file.c_str()); }

}  // namespace memcgd::server
