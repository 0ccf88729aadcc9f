#include "client/record/trace_instance.h"

#include <dirent.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/record/own_name.h"
#include "client/record/proc_file.h"
#include "client/record/tracefs_api.h"

namespace memcgd::client {
namespace {

absl::Status ErrnoOf(const std::string& what) { return absl::ErrnoToStatus(errno, what); }

struct Freed {
  void operator()(char* text) const { std::free(text); }
};
using FreedText = std::unique_ptr<char, Freed>;

}  // namespace

absl::Status CheckTracing(bool mount) {
  const char* path = nullptr;
  if (tracefs_tracing_dir_is_mounted(mount, &path) < 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot mount tracefs: ", geteuid() != 0 ? "run it as root" : "this kernel or container has none"));
  }
  if (!mount && tracefs_tracing_dir_is_mounted(false, &path) == 0) {
    return absl::FailedPreconditionError(
        "tracefs is not mounted: `mount -t tracefs none /sys/kernel/tracing` as root, or --mount-tracefs");
  }
  const std::string instances = absl::StrCat(tracefs_tracing_dir(), "/instances");
  if (access(instances.c_str(), R_OK | W_OK | X_OK) == 0) return absl::OkStatus();
  if (errno == EACCES || errno == EPERM) {
    return absl::PermissionDeniedError(absl::StrCat(instances, " may not be written to: run it as root"));
  }
  return ErrnoOf(instances);
}

int RemoveLeftInstances() {
  int removed = 0;
  char** names = tracefs_instances(nullptr);
  for (char** name = names; name != nullptr && *name != nullptr; ++name) {
    if (!IsLeftBehind(*name)) continue;
    removed += rmdir(absl::StrCat(tracefs_tracing_dir(), "/instances/", *name).c_str()) == 0 ? 1 : 0;
  }
  tracefs_list_free(names);
  return removed;
}

int64_t TraceClockNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

absl::StatusOr<std::unique_ptr<TraceInstance>> TraceInstance::Create(const std::string& name,
                                                                     uint64_t buffer_bytes_per_cpu) {
  tracefs_instance* made = tracefs_instance_create(name.c_str());
  if (made == nullptr) return ErrnoOf(absl::StrCat("making the tracing instance ", name));
  std::unique_ptr<TraceInstance> instance(new TraceInstance(made));
  const std::string kib = absl::StrCat((buffer_bytes_per_cpu + 1023) / 1024);
  for (const auto& [file, text] : {std::pair<const char*, std::string>{"tracing_on", "0"},
                                   {"trace_clock", "mono"},
                                   {"buffer_size_kb", kib},
                                   {"options/event-fork", "1"}}) {
    absl::Status status = instance->Write(file, text);
    if (!status.ok()) return status;
  }
  return instance;
}

TraceInstance::~TraceInstance() {
  Write("tracing_on", "0").IgnoreError();
  tracefs_instance_destroy(instance_);
  tracefs_instance_free(instance_);
}

bool TraceInstance::HasEvent(const EventName& event) {
  return tracefs_event_file_exists(nullptr, event.system, event.event.c_str(), "format");
}

absl::StatusOr<std::string> TraceInstance::EventFormat(const EventName& event) {
  int size = 0;
  const FreedText text(tracefs_event_file_read(nullptr, event.system, event.event.c_str(), "format", &size));
  if (text == nullptr) return ErrnoOf(absl::StrCat("the format of event ", event.event));
  return std::string(text.get(), static_cast<size_t>(size));
}

absl::Status TraceInstance::Enable(const EventName& event) {
  if (tracefs_event_enable(instance_, event.system, event.event.c_str()) != 0)
    return ErrnoOf(absl::StrCat("enabling event ", event.system, ":", event.event));
  return absl::OkStatus();
}

absl::Status TraceInstance::SetPids(const std::vector<int32_t>& pids) {
  return Write("set_event_pid", absl::StrJoin(pids, " "));
}

absl::Status TraceInstance::TurnOn() { return Write("tracing_on", "1"); }
absl::Status TraceInstance::TurnOff() { return Write("tracing_on", "0"); }

absl::Status TraceInstance::Write(const char* file, const std::string& text) {
  if (tracefs_instance_file_write(instance_, file, text.c_str()) < 0)
    return ErrnoOf(absl::StrCat("writing ", text, " to ", file, " of the tracing instance"));
  return absl::OkStatus();
}

absl::StatusOr<int> TraceInstance::OpenRaw(uint32_t cpu) const {
  const FreedText path(
      tracefs_instance_get_file(instance_, absl::StrCat("per_cpu/cpu", cpu, "/trace_pipe_raw").c_str()));
  const int fd = path == nullptr ? -1 : open(path.get(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return ErrnoOf(absl::StrCat("the trace buffer of CPU ", cpu));
  return fd;
}

std::vector<uint32_t> TraceInstance::Cpus() const {
  std::vector<uint32_t> cpus;
  const FreedText path(tracefs_instance_get_file(instance_, "per_cpu"));
  DIR* folder = path == nullptr ? nullptr : opendir(path.get());
  while (const dirent* entry = folder == nullptr ? nullptr : readdir(folder)) {
    uint32_t cpu = 0;
    if (std::string_view(entry->d_name).starts_with("cpu") && absl::SimpleAtoi(entry->d_name + 3, &cpu))
      cpus.push_back(cpu);
  }
  if (folder != nullptr) closedir(folder);
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

uint64_t TraceInstance::LostEvents() const {
  uint64_t lost = 0;
  for (const uint32_t cpu : Cpus()) {
    const FreedText stats(
        tracefs_instance_file_read(instance_, absl::StrCat("per_cpu/cpu", cpu, "/stats").c_str(), nullptr));
    if (stats == nullptr) continue;
    for (const char* what : {"overrun", "commit overrun", "dropped events"})
      lost += NumberOfLine(stats.get(), what, 0);
  }
  return lost;
}

uint64_t TraceInstance::SubBufferBytes() const {
  long long kib = 0;
  const bool told = tracefs_instance_file_read_number(instance_, "buffer_subbuf_size_kb", &kib) == 0;
  return told && kib > 0 ? static_cast<uint64_t>(kib) * 1024 : static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace memcgd::client
