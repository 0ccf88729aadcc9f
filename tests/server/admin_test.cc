// NodeService and CgroupService: what they answer, and what they refuse.
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/server/server_fixture.h"

namespace memcgd::server {
namespace {

class AdminTest : public ServerFixture {};

TEST_F(AdminTest, ANodeIsMadeAsItWasAsked) {
  v1::NodeSpec spec;
  spec.set_cpus(4);
  spec.set_memory_bytes(uint64_t{1} << 30);
  spec.set_no_zero_page(true);
  spec.set_overcommit(v1::OVERCOMMIT_POLICY_NEVER);
  v1::Node made;
  ASSERT_TRUE(CreateNode("n", &made, spec).ok());
  EXPECT_EQ(made.name(), "n");
  EXPECT_NE(made.incarnation(), 0u);
  EXPECT_EQ(made.spec().cpus(), 4u);
  EXPECT_EQ(made.spec().page_size(), 4096u);
  EXPECT_TRUE(made.spec().no_zero_page());
  EXPECT_EQ(made.spec().overcommit(), v1::OVERCOMMIT_POLICY_NEVER);
  EXPECT_EQ(made.cgroups(), 1u) << "the root";
  v1::Node read;
  ASSERT_TRUE(GetNode("n", &read).ok());
  EXPECT_EQ(read.SerializeAsString(), made.SerializeAsString());
}

TEST_F(AdminTest, ANodeTellsTheFormsThatItsMechanismsHave) {
  v1::Node made;
  v1::NodeSpec spec;
  spec.mutable_mechanisms()->set_stats(v1::STATS_FORM_RSTAT);
  ASSERT_TRUE(CreateNode("n", &made, spec).ok());
  const v1::Mechanisms& forms = made.spec().mechanisms();
  EXPECT_EQ(forms.stats(), v1::STATS_FORM_RSTAT);
  EXPECT_EQ(forms.charge_order(), v1::CHARGE_ORDER_CHARGE_FIRST) << "the default, by name";
  EXPECT_EQ(forms.commit_batch(), v1::COMMIT_BATCH_BY_POLICY);
  EXPECT_EQ(forms.css_refs(), v1::CSS_REFS_COALESCED);
  EXPECT_EQ(forms.lru_lock(), v1::LRU_LOCK_PER_MEMCG);
  EXPECT_TRUE(made.has_mechanism_counters());
}

TEST_F(AdminTest, SettingOvercommitChangesWhatIsGivenAndTheLimit) {
  v1::NodeSpec spec;
  spec.set_memory_bytes(uint64_t{1} << 30);
  v1::Node node;
  ASSERT_TRUE(CreateNode("n", &node, spec).ok());
  EXPECT_EQ(node.commit_limit_bytes(), uint64_t{1} << 29);
  ASSERT_TRUE(SetOvercommit("n", v1::OVERCOMMIT_POLICY_NEVER, 0, 0, &node).ok());
  EXPECT_EQ(node.spec().overcommit(), v1::OVERCOMMIT_POLICY_NEVER);
  EXPECT_EQ(node.spec().overcommit_ratio(), 50u) << "as it was";
  ASSERT_TRUE(SetOvercommit("n", v1::OVERCOMMIT_POLICY_ALWAYS, 25, 0, &node).ok());
  EXPECT_EQ(node.spec().overcommit_ratio(), 25u);
  EXPECT_EQ(node.commit_limit_bytes(), uint64_t{1} << 28);
  ASSERT_TRUE(SetOvercommit("n", v1::OVERCOMMIT_POLICY_GUESS, 0, 1024, &node).ok());
  EXPECT_EQ(node.spec().overcommit_ratio(), 0u);
  EXPECT_EQ(node.spec().overcommit_kbytes(), 1024u);
  EXPECT_EQ(node.commit_limit_bytes(), 1024u * 1024);
}

TEST_F(AdminTest, APathThatIsNotUtf8IsWrittenInEscapes) {
  ASSERT_TRUE(CreateNode("n").ok());
  ASSERT_TRUE(CreateCgroup("n", "/raw\\xff").ok());
  ASSERT_TRUE(CreateCgroup("n", "/literal\\x5cxff").ok());
  ASSERT_TRUE(CreateCgroup("n", "/unit\\x2da").ok());
  v1::ListCgroupsRequest request;
  request.set_node("n");
  request.set_page_size(1);
  std::vector<std::string> paths;
  do {
    v1::ListCgroupsResponse response;
    ASSERT_TRUE(cgroups_->ListCgroups(ContextFor("n").get(), request, &response).ok());
    for (const v1::Cgroup& cgroup : response.cgroups()) paths.push_back(cgroup.path());
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(paths, (std::vector<std::string>{"/", "/literal\\x5cxff", "/raw\\xff", "/unit\\x2da"}));
  EXPECT_TRUE(server_->TEST_registry()->Find("n").value()->core()->GetCgroup("/raw\xff").ok());
  EXPECT_TRUE(server_->TEST_registry()->Find("n").value()->core()->GetCgroup("/literal\\xff").ok());
  const grpc::Status status = CreateCgroup("n", "/raw\\xff");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(DetailOf<google::rpc::ResourceInfo>(status)->resource_name(), "/raw\\xff");
  EXPECT_TRUE(DeleteCgroup("n", "/raw\\xff").ok());
}

TEST_F(AdminTest, AFastReadTellsItsErrorBound) {
  v1::NodeSpec spec;
  spec.set_cpus(2);
  ASSERT_TRUE(CreateNode("n", nullptr, spec).ok());
  v1::ReadCgroupRequest read;
  read.set_node("n");
  read.set_path("/");
  v1::ReadCgroupResponse reading;
  ASSERT_TRUE(cgroups_->ReadCgroup(ContextFor("n").get(), read, &reading).ok());
  EXPECT_EQ(reading.error_bound(), 0u) << "exact";
  read.set_fast(true);
  ASSERT_TRUE(cgroups_->ReadCgroup(ContextFor("n").get(), read, &reading).ok());
  EXPECT_GT(reading.error_bound(), 0u);
}

TEST_F(AdminTest, NodesAreListedInPages) {
  for (const char* name : {"c", "a", "e", "b", "d"}) ASSERT_TRUE(CreateNode(name).ok());
  std::string names, token;
  int pages = 0;
  do {
    v1::ListNodesRequest request;
    request.set_page_size(2);
    request.set_page_token(token);
    v1::ListNodesResponse response;
    ASSERT_TRUE(nodes_->ListNodes(ContextFor("").get(), request, &response).ok()) << "needs no metadata";
    for (const v1::Node& node : response.nodes()) names += node.name();
    EXPECT_NE(response.server(), "");
    token = response.next_page_token();
    ++pages;
  } while (!token.empty());
  EXPECT_EQ(names, "abcde");
  EXPECT_EQ(pages, 3);
}

TEST_F(AdminTest, CgroupsAreListedInPagesBelowOne) {
  ASSERT_TRUE(CreateNode("n").ok());
  for (const char* path : {"/a", "/a/x", "/a/y", "/ab", "/b"}) ASSERT_TRUE(CreateCgroup("n", path).ok());
  const auto list = [this](const std::string& below) {
    std::vector<std::string> paths;
    std::string token;
    do {
      v1::ListCgroupsRequest request;
      request.set_node("n");
      request.set_below(below);
      request.set_page_size(2);
      request.set_page_token(token);
      v1::ListCgroupsResponse response;
      EXPECT_TRUE(cgroups_->ListCgroups(ContextFor("n").get(), request, &response).ok());
      for (const v1::Cgroup& cgroup : response.cgroups()) paths.push_back(cgroup.path());
      token = response.next_page_token();
    } while (!token.empty());
    return paths;
  };
  EXPECT_EQ(list("").size(), 6u);
  EXPECT_EQ(list("").front(), "/");
  EXPECT_EQ(list("/a"), (std::vector<std::string>{"/a", "/a/x", "/a/y"}));
}

TEST_F(AdminTest, ACgroupIsMadeReadAndDeleted) {
  ASSERT_TRUE(CreateNode("n").ok());
  ASSERT_TRUE(CreateCgroup("n", "/a").ok());
  v1::SetKnobsRequest set;
  set.set_node("n");
  set.set_path("/a");
  (*set.mutable_knobs())["memory.max"] = "64M";
  v1::SetKnobsResponse after;
  ASSERT_TRUE(cgroups_->SetKnobs(ContextFor("n").get(), set, &after).ok());
  EXPECT_EQ(after.cgroup().knobs().at("memory.max"), "67108864");
  v1::ReadCgroupRequest read;
  read.set_node("n");
  read.set_path("/a");
  v1::ReadCgroupResponse reading;
  ASSERT_TRUE(cgroups_->ReadCgroup(ContextFor("n").get(), read, &reading).ok());
  EXPECT_TRUE(reading.has_current_bytes());
  EXPECT_EQ(reading.stat(0).name(), "anon");
  read.set_path("/");
  reading.Clear();
  ASSERT_TRUE(cgroups_->ReadCgroup(ContextFor("n").get(), read, &reading).ok());
  EXPECT_FALSE(reading.has_current_bytes()) << "the root has no memory.current";
  EXPECT_TRUE(reading.has_root_usage());
  EXPECT_TRUE(DeleteCgroup("n", "/a").ok());
  EXPECT_EQ(DeleteCgroup("n", "/a").error_code(), grpc::StatusCode::NOT_FOUND);
}

// Every refusal: its code, and whose name it bears.
struct Refusal {
  std::string name;
  grpc::StatusCode code;
  std::string named;  // in the message
  std::function<grpc::Status(AdminTest*)> call;
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

class AdminErrorTest : public AdminTest, public testing::WithParamInterface<Refusal> {
 public:
  // gtest's parameters cannot reach protected members of the fixture.
  using ServerFixture::cgroups_;
  using ServerFixture::CreateCgroup;
  using ServerFixture::CreateNode;
  using ServerFixture::DeleteCgroup;
  using ServerFixture::DeleteNode;
  using ServerFixture::GetNode;
  using ServerFixture::nodes_;
  using ServerFixture::SetOvercommit;

  grpc::Status SetKnob(const std::string& knob, const std::string& value) {
    v1::SetKnobsRequest request;
    request.set_node("n");
    request.set_path("/a");
    (*request.mutable_knobs())[knob] = value;
    v1::SetKnobsResponse response;
    return cgroups_->SetKnobs(ContextFor("n").get(), request, &response);
  }

  grpc::Status Read(const std::string& node, const std::string& path, int names = 0) {
    v1::ReadCgroupRequest request;
    request.set_node(node);
    request.set_path(path);
    request.set_names(static_cast<v1::NameStyle>(names));
    v1::ReadCgroupResponse response;
    return cgroups_->ReadCgroup(ContextFor(node).get(), request, &response);
  }

  grpc::Status List(const std::string& below, int32_t page_size, const std::string& token) {
    v1::ListCgroupsRequest request;
    request.set_node("n");
    request.set_below(below);
    request.set_page_size(page_size);
    request.set_page_token(token);
    v1::ListCgroupsResponse response;
    return cgroups_->ListCgroups(ContextFor("n").get(), request, &response);
  }

  grpc::Status GetWithMetadata(const std::string& metadata) {
    v1::GetNodeRequest request;
    request.set_name("n");
    v1::GetNodeResponse response;
    return nodes_->GetNode(ContextFor(metadata).get(), request, &response);
  }
};

AdminErrorTest* As(AdminTest* test) { return static_cast<AdminErrorTest*>(test); }

grpc::Status CreateWith(AdminTest* test, void (*change)(v1::NodeSpec* spec)) {
  v1::NodeSpec spec;
  change(&spec);
  return As(test)->CreateNode("new", nullptr, spec);
}

constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
constexpr auto kNotFound = grpc::StatusCode::NOT_FOUND;
constexpr auto kExists = grpc::StatusCode::ALREADY_EXISTS;
constexpr auto kPrecondition = grpc::StatusCode::FAILED_PRECONDITION;

TEST_P(AdminErrorTest, HasItsCodeAndNamesItsSubject) {
  ASSERT_TRUE(CreateNode("n").ok());
  ASSERT_TRUE(CreateCgroup("n", "/a").ok());
  ASSERT_TRUE(CreateCgroup("n", "/a/b").ok());
  const grpc::Status status = GetParam().call(this);
  EXPECT_EQ(status.error_code(), GetParam().code) << status.error_message();
  EXPECT_NE(status.error_message().find(GetParam().named), std::string::npos) << status.error_message();
  EXPECT_NE(status.error_details(), "");
}

INSTANTIATE_TEST_SUITE_P(
    , AdminErrorTest,
    testing::Values(
        Refusal{"UnknownNode", kNotFound, "\"x\"",
                [](AdminTest* t) {
                  v1::Node node;
                  return As(t)->GetNode("x", &node);
                }},
        Refusal{"DeleteUnknownNode", kNotFound, "\"x\"", [](AdminTest* t) { return As(t)->DeleteNode("x"); }},
        Refusal{"DuplicateNode", kExists, "\"n\"", [](AdminTest* t) { return As(t)->CreateNode("n"); }},
        Refusal{"BadNodeName", kInvalid, "a/b", [](AdminTest* t) { return As(t)->CreateNode("a/b"); }},
        Refusal{"TooManyCpus", kInvalid, "cpus",
                [](AdminTest* t) { return CreateWith(t, [](v1::NodeSpec* spec) { spec->set_cpus(1025); }); }},
        Refusal{"OddPageSize", kInvalid, "page_size",
                [](AdminTest* t) {
                  return CreateWith(t, [](v1::NodeSpec* spec) { spec->set_page_size(5000); });
                }},
        Refusal{"NoWriteback", kInvalid, "writeback_bytes_per_second 0 is not in 4096 … 2^52",
                [](AdminTest* t) {
                  return CreateWith(t, [](v1::NodeSpec* spec) { spec->set_writeback_bytes_per_second(0); });
                }},
        Refusal{"TooSlowADisk", kInvalid, "read_bytes_per_second 4095 is not in 4096 … 2^52",
                [](AdminTest* t) {
                  return CreateWith(t, [](v1::NodeSpec* spec) { spec->set_read_bytes_per_second(4095); });
                }},
        Refusal{"TooMuchWriteback", kInvalid, "writeback_bytes_per_second",
                [](AdminTest* t) {
                  return CreateWith(
                      t, [](v1::NodeSpec* spec) { spec->set_writeback_bytes_per_second(UINT64_MAX); });
                }},
        Refusal{"UnknownPolicy", kInvalid, "overcommit",
                [](AdminTest* t) {
                  return CreateWith(t, [](v1::NodeSpec* spec) {
                    spec->set_overcommit(static_cast<v1::OvercommitPolicy>(7));
                  });
                }},
        Refusal{"UnknownForm", kInvalid, "spec.mechanisms.lru_lock",
                [](AdminTest* t) {
                  return CreateWith(t, [](v1::NodeSpec* spec) {
                    spec->mutable_mechanisms()->set_lru_lock(static_cast<v1::LruLock>(3));
                  });
                }},
        Refusal{"OvercommitOfUnknownNode", kNotFound, "no node \"x\"",
                [](AdminTest* t) { return As(t)->SetOvercommit("x", v1::OVERCOMMIT_POLICY_NEVER, 0, 0); }},
        Refusal{"OvercommitBothRatioAndKbytes", kInvalid, "ratio_percent 80 and kbytes 7",
                [](AdminTest* t) { return As(t)->SetOvercommit("n", v1::OVERCOMMIT_POLICY_NEVER, 80, 7); }},
        Refusal{"OvercommitUnknownPolicy", kInvalid, "policy",
                [](AdminTest* t) {
                  return As(t)->SetOvercommit("n", static_cast<v1::OvercommitPolicy>(4), 0, 0);
                }},
        Refusal{"MissingMetadata", kInvalid, "\"n\"",
                [](AdminTest* t) { return As(t)->GetWithMetadata(""); }},
        Refusal{"OtherMetadata", kInvalid, "\"other\"",
                [](AdminTest* t) { return As(t)->GetWithMetadata("other"); }},
        Refusal{"CgroupOfUnknownNode", kNotFound, "\"x\"",
                [](AdminTest* t) { return As(t)->Read("x", "/a"); }},
        Refusal{"UnknownCgroup", kNotFound, "/none", [](AdminTest* t) { return As(t)->Read("n", "/none"); }},
        Refusal{"UnknownNames", kInvalid, "names", [](AdminTest* t) { return As(t)->Read("n", "/a", 9); }},
        Refusal{"DuplicateCgroup", kExists, "/a",
                [](AdminTest* t) { return As(t)->CreateCgroup("n", "/a"); }},
        Refusal{"RootExists", kExists, "/", [](AdminTest* t) { return As(t)->CreateCgroup("n", "/"); }},
        Refusal{"NoParent", kNotFound, "/p", [](AdminTest* t) { return As(t)->CreateCgroup("n", "/p/q"); }},
        Refusal{"DeleteWithChildren", kPrecondition, "/a",
                [](AdminTest* t) { return As(t)->DeleteCgroup("n", "/a"); }},
        Refusal{"DeleteRoot", kPrecondition, "root",
                [](AdminTest* t) { return As(t)->DeleteCgroup("n", "/"); }},
        Refusal{"DeleteUnknownCgroup", kNotFound, "/none",
                [](AdminTest* t) { return As(t)->DeleteCgroup("n", "/none"); }},
        Refusal{"DotDotPath", kInvalid, "/a/../b",
                [](AdminTest* t) { return As(t)->CreateCgroup("n", "/a/../b"); }},
        Refusal{"EmptyPart", kInvalid, "/a//b",
                [](AdminTest* t) { return As(t)->CreateCgroup("n", "/a//b"); }},
        Refusal{"RelativePath", kInvalid, "a", [](AdminTest* t) { return As(t)->CreateCgroup("n", "a"); }},
        Refusal{"LongPart", kInvalid, "255",
                [](AdminTest* t) { return As(t)->CreateCgroup("n", "/" + std::string(256, 'p')); }},
        Refusal{"UnknownKnob", kInvalid, "memory.frob",
                [](AdminTest* t) { return As(t)->SetKnob("memory.frob", "1"); }},
        Refusal{"BadKnobValue", kInvalid, "memory.max",
                [](AdminTest* t) { return As(t)->SetKnob("memory.max", "much"); }},
        Refusal{"NegativeKnob", kInvalid, "memory.max takes \"max\" or bytes",
                [](AdminTest* t) { return As(t)->SetKnob("memory.max", "-1"); }},
        Refusal{"KnobOver63Bits", kInvalid, "below 2^63",
                [](AdminTest* t) { return As(t)->SetKnob("memory.low", "9223372036854775808"); }},
        Refusal{"ShareOver100", kInvalid, "0% … 100%",
                [](AdminTest* t) { return As(t)->SetKnob("memory.min", "101%"); }},
        Refusal{"ReclaimIsNoKnob", kInvalid, "no knob \"memory.reclaim\"",
                [](AdminTest* t) { return As(t)->SetKnob("memory.reclaim", "1M"); }},
        Refusal{"BadToken", kInvalid, "page_token", [](AdminTest* t) { return As(t)->List("", 0, "xyz"); }},
        Refusal{"NegativePage", kInvalid, "page_size", [](AdminTest* t) { return As(t)->List("", -1, ""); }},
        Refusal{"ListBelowUnknown", kNotFound, "/none",
                [](AdminTest* t) { return As(t)->List("/none", 0, ""); }}),
    [](const testing::TestParamInfo<Refusal>& info) { return info.param.name; });

TEST_F(AdminTest, ARefusedKnobLeavesTheOthersAsTheyWere) {
  ASSERT_TRUE(CreateNode("n").ok());
  ASSERT_TRUE(CreateCgroup("n", "/a").ok());
  v1::SetKnobsRequest request;
  request.set_node("n");
  request.set_path("/a");
  (*request.mutable_knobs())["memory.high"] = "1M";
  (*request.mutable_knobs())["memory.max"] = "nonsense";
  v1::SetKnobsResponse response;
  EXPECT_EQ(cgroups_->SetKnobs(ContextFor("n").get(), request, &response).error_code(), kInvalid);
  v1::GetCgroupRequest get;
  get.set_node("n");
  get.set_path("/a");
  v1::GetCgroupResponse read;
  ASSERT_TRUE(cgroups_->GetCgroup(ContextFor("n").get(), get, &read).ok());
  EXPECT_NE((*read.mutable_cgroup()->mutable_knobs())["memory.high"], "1048576");
}

}  // namespace
}  // namespace memcgd::server
