#include "client/memcgctl_spec.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/memcgctl_app.h"

namespace memcgd::client {

namespace v1 = memcgd::v1;

namespace {

// The form of that name: names of flags are those of the wire, in lower case and without the enum's.
template <typename Form>
Form FormOf(const std::string& name, const std::string& prefix, bool (*parse)(const std::string&, Form*)) {
  Form form{};
  if (!name.empty()) parse(absl::AsciiStrToUpper(absl::StrCat(prefix, name)), &form);
  return form;
}

}  // namespace

v1::OvercommitPolicy OvercommitPolicyOf(std::string_view name) {
  return name == "always"  ? v1::OVERCOMMIT_POLICY_ALWAYS
         : name == "never" ? v1::OVERCOMMIT_POLICY_NEVER
                           : v1::OVERCOMMIT_POLICY_GUESS;
}

CLI::Option* AddChoice(CLI::App* app, const std::string& flag, std::string* value,
                       const std::vector<std::string>& names, const std::string& help) {
  return app->add_option(flag, *value, help)
      ->type_name(absl::StrJoin(names, "|"))
      ->check(CLI::IsMember(names).description(""));
}

void SpecFlags::AddTo(CLI::App* app) {
  reclaim_option =
      AddChoice(app, "--reclaim", &reclaim, {"recorded", "none", "modelled"},
                "What makes room at a limit: what the trace tells, nothing (the fault is refused), or "
                "the model's own reclaim, swap and OOM")
          ->capture_default_str();
  writeback_option =
      AddBytesOption(app, "--writeback-rate", &writeback_bytes_per_second,
                     "Bytes of dirty files that the disk writes in a second, of modelled reclaim [200M]");
  read_option = AddBytesOption(app, "--read-rate", &read_bytes_per_second,
                               "Bytes of files that the disk reads in a second, of modelled reclaim [1536M]");
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
      reclaim_option,
      writeback_option,
      app->add_flag("--no-zero-page", no_zero_page,
                    "A read of untouched memory gets a page of its own, as on kernels without a zero page"),
      AddChoice(app, "--charge-order", &charge_order, {"charge_first", "uptodate_first"},
                "When a new page is charged [charge_first]"),
      AddChoice(app, "--commit-batch", &commit_batch, {"by_policy", "small"},
                "The batch of Committed_AS on each CPU [by_policy]"),
      AddChoice(app, "--css-refs", &css_refs, {"coalesced", "per_page"},
                "References of charged pages on their cgroup [coalesced]"),
      AddChoice(app, "--stats", &stats, {"spill", "walk", "rstat"}, "How statistics reach ancestors [spill]"),
      AddChoice(app, "--lru-lock", &lru_lock, {"per_memcg", "per_node"},
                "Whose lock guards the LRU lists [per_memcg]"),
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
  spec.set_overcommit(OvercommitPolicyOf(overcommit));
  spec.set_reclaim(FormOf<v1::ReclaimMode>(reclaim, "RECLAIM_MODE_", v1::ReclaimMode_Parse));
  if (writeback_option->count() != 0) spec.set_writeback_bytes_per_second(writeback_bytes_per_second);
  if (read_option->count() != 0) spec.set_read_bytes_per_second(read_bytes_per_second);
  v1::Mechanisms* forms = spec.mutable_mechanisms();
  forms->set_charge_order(FormOf<v1::ChargeOrder>(charge_order, "CHARGE_ORDER_", v1::ChargeOrder_Parse));
  forms->set_commit_batch(FormOf<v1::CommitBatch>(commit_batch, "COMMIT_BATCH_", v1::CommitBatch_Parse));
  forms->set_css_refs(FormOf<v1::CssRefs>(css_refs, "CSS_REFS_", v1::CssRefs_Parse));
  forms->set_stats(FormOf<v1::StatsForm>(stats, "STATS_FORM_", v1::StatsForm_Parse));
  forms->set_lru_lock(FormOf<v1::LruLock>(lru_lock, "LRU_LOCK_", v1::LruLock_Parse));
  return spec;
}

bool SpecFlags::reclaim_given() const { return reclaim_option->count() != 0; }

std::string SpecFlags::Given() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : options) {
    if (option->count() != 0) names.push_back(option->get_name());
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace memcgd::client
