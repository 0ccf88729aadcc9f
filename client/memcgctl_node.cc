// memcgctl node create|get|list|set-overcommit|delete.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/memcgctl_app.h"
#include "client/memcgctl_exit.h"
#include "client/memcgctl_spec.h"

namespace memcgd::client {
namespace {

namespace v1 = memcgd::v1;

int PrintNode(Context* context, const v1::Node& node) {
  return Finish(context, context->json() ? NodeJson(node) + "\n" : NodeTable(node));
}

int CreateNode(NodeClient* client, Context* context, const std::string& name, const SpecFlags& flags) {
  absl::StatusOr<v1::Node> node = client->CreateNode(name, flags.Spec(kDefaultCpus));
  return node.ok() ? PrintNode(context, *node) : FailWith(node.status());
}

int GetNode(NodeClient* client, Context* context, const std::string& name) {
  absl::StatusOr<v1::Node> node = client->GetNode(name);
  return node.ok() ? PrintNode(context, *node) : FailWith(node.status());
}

int ListNodes(NodeClient* client, Context* context) {
  absl::StatusOr<std::vector<v1::Node>> nodes = client->ListNodes();
  if (!nodes.ok()) return FailWith(nodes.status());
  if (!context->json()) return Finish(context, NodesTable(*nodes));
  const auto json = [](std::string* to, const v1::Node& node) { to->append(NodeJson(node)); };
  return Finish(context, absl::StrCat("[", absl::StrJoin(*nodes, ",\n ", json), "]\n"));
}

struct OvercommitFlags {
  std::string policy;
  uint32_t ratio_percent = 0;
  uint64_t kbytes = 0;
};

int SetOvercommit(NodeClient* client, Context* context, const std::string& name,
                  const OvercommitFlags& flags) {
  absl::StatusOr<v1::Node> node =
      client->SetOvercommit(name, OvercommitPolicyOf(flags.policy), flags.ratio_percent, flags.kbytes);
  return node.ok() ? PrintNode(context, *node) : FailWith(node.status());
}

int DeleteNode(NodeClient* client, const std::string& name) {
  const absl::Status status = client->DeleteNode(name);
  return status.ok() ? kExitOk : FailWith(status);
}

CLI::App* AddCommandWithName(CLI::App* node, const std::string& command, const std::string& help,
                             std::string* name) {
  CLI::App* app = node->add_subcommand(command, help);
  app->add_option("name", *name, "The node's name")->required()->type_name("NAME");
  return app;
}

void AddSetOvercommitCommand(CLI::App* node, Context* context, const std::shared_ptr<std::string>& name) {
  CLI::App* app =
      AddCommandWithName(node, "set-overcommit", "Set vm.overcommit_memory of a node", name.get());
  auto flags = std::make_shared<OvercommitFlags>();
  AddChoice(app, "policy", &flags->policy, {"guess", "always", "never"}, "vm.overcommit_memory")->required();
  app->add_option("--ratio", flags->ratio_percent,
                  "vm.overcommit_ratio; kbytes become 0 [both stay as they are]")
      ->type_name("PERCENT")
      ->check(CLI::PositiveNumber.description(""));
  app->add_option("--kbytes", flags->kbytes, "vm.overcommit_kbytes; the ratio becomes 0")
      ->type_name("N")
      ->check(CLI::PositiveNumber.description(""));
  SetCommand(app, context, [=](NodeClient* client) { return SetOvercommit(client, context, *name, *flags); });
}

}  // namespace

void AddNodeCommands(CLI::App* app, Context* context) {
  CLI::App* node = app->add_subcommand("node", "Make, read and remove nodes (modelled machines)");
  auto name = std::make_shared<std::string>();
  auto flags = std::make_shared<SpecFlags>();

  CLI::App* create = AddCommandWithName(node, "create", "Make a node", name.get());
  flags->AddTo(create);
  SetCommand(create, context, [=](NodeClient* client) { return CreateNode(client, context, *name, *flags); });

  CLI::App* get = AddCommandWithName(node, "get", "Print what a node is and has in use", name.get());
  SetCommand(get, context, [=](NodeClient* client) { return GetNode(client, context, *name); });

  CLI::App* list = node->add_subcommand("list", "List the nodes of this server");
  SetCommand(list, context, [=](NodeClient* client) { return ListNodes(client, context); });

  AddSetOvercommitCommand(node, context, name);

  CLI::App* remove = AddCommandWithName(node, "delete", "Remove a node and all that it holds", name.get());
  SetCommand(remove, context, [=](NodeClient* client) { return DeleteNode(client, *name); });
}

}  // namespace memcgd::client
