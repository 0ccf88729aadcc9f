#include "server/log.h"

#include <grpc/support/log.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace memcgd::server {
namespace {

// gRPC logs as errors what we report ourselves in one line (a busy port) or what clients cause; it is for who
// looks for a fault, one level down.
void LogOfGrpc(gpr_log_func_args* args) {
  const auto level = args->severity == GPR_LOG_SEVERITY_ERROR ? spdlog::level::debug : spdlog::level::trace;
  spdlog::log(level, "grpc: {}", args->message);
}

}  // namespace

void InitLog(const std::string& level) {
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("memcgd", std::make_shared<spdlog::sinks::stderr_color_sink_mt>()));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %^%l%$ %v");
  spdlog::set_level(spdlog::level::from_str(level));
  spdlog::flush_on(spdlog::level::info);
  gpr_set_log_function(LogOfGrpc);
}

}  // namespace memcgd::server
