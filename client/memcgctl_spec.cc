#include "client/memcgctl_spec.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/memcgctl_app.h"

namespace memcgd::client {

namespace v1 = memcgd::v1;

void SpecFlags::AddTo(CLI::App* app) {
  options = {
      app->add_option("--cpus", cpus, "CPUs of the node, 1 to 1024")
          ->type_name("N")
          ->check(CLI::Range(1, 1024).description("")),
      AddBytesOption(app, "--memory", &memory_bytes, "RAM of the node [16G]"),
      AddBytesOption(app, "--swap", &swap_bytes, "Swap of the node [0]"),
      AddBytesOption(app, "--page-size", &page_size, "Page size of the node, a power of two, 4K to 64K [4K]"),
      app->add_option("--overcommit", overcommit, "vm.overcommit_memory: guess (0), always (1) or never (2)")
          ->type_name("guess|always|never")
          ->check(CLI::IsMember({"guess", "always", "never"}).description(""))
          ->capture_default_str(),
      app->add_flag("--no-zero-page", no_zero_page,
                    "A read of untouched memory gets a page of its own, as on kernels without a zero page"),
  };
}

v1::NodeSpec SpecFlags::Spec(uint32_t cpus_otherwise) const {
  v1::NodeSpec spec;
  spec.set_cpus(cpus != 0 ? cpus : cpus_otherwise);
  spec.set_memory_bytes(memory_bytes);
  spec.set_swap_bytes(swap_bytes);
  // Beyond 32 bits is out of range whatever the server's range is; it shall say so.
  spec.set_page_size(page_size > UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(page_size));
  spec.set_no_zero_page(no_zero_page);
  spec.set_overcommit(overcommit == "always"  ? v1::OVERCOMMIT_POLICY_ALWAYS
                      : overcommit == "never" ? v1::OVERCOMMIT_POLICY_NEVER
                                              : v1::OVERCOMMIT_POLICY_GUESS);
  return spec;
}

std::string SpecFlags::Given() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : options) {
    if (option->count() != 0) names.push_back(option->get_name());
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace memcgd::client
