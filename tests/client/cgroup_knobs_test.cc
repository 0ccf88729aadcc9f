// Knobs on cgroups of a trace: how they are written, when they are due.
#include "client/cgroup_knobs.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace memcgd::client {
namespace {

std::string ValueOf(const std::string& knob, const std::string& text) {
  absl::StatusOr<CgroupKnob> parsed = ParseCgroupKnob(knob, text);
  if (!parsed.ok()) return std::string(parsed.status().message());
  return parsed->path + " " + parsed->value;
}

TEST(ParseCgroupKnobTest, TakesWhatTheKernelTakesAndShares) {
  EXPECT_EQ(ValueOf("memory.max", "/a/b=64M"), "/a/b 67108864");
  EXPECT_EQ(ValueOf("memory.max", "/a=0"), "/a 0");
  EXPECT_EQ(ValueOf("memory.high", "/a=max"), "/a max");
  EXPECT_EQ(ValueOf("memory.max", "/a=9223372036854775807"), "/a 9223372036854775807");
  EXPECT_EQ(ValueOf("memory.low", "/a=50%"), "/a 50%");
  EXPECT_EQ(ValueOf("memory.low", "/a=100%"), "/a 100%");
  EXPECT_EQ(ValueOf("memory.swap.max", "/a=50%"), "/a 50%") << "whose whole the server knows";
  EXPECT_EQ(ValueOf("memory.swappiness", "/a=200"), "/a 200");
  EXPECT_EQ(ValueOf("memory.oom.group", "/a=1"), "/a 1");
  EXPECT_EQ(ValueOf("memory.max", "/a=b/c=1K"), "/a=b/c 1024") << "a path may have a =";
}

TEST(ParseCgroupKnobTest, SaysWhatIsWrong) {
  EXPECT_EQ(ValueOf("memory.max", "/a"), "\"/a\" has no value: PATH=VALUE is wanted");
  EXPECT_EQ(ValueOf("memory.max", "a=1"), "\"a\" is no cgroup's path: as /a/b is wanted");
  EXPECT_EQ(ValueOf("memory.max", "/a/../b=1"), "\"/a/../b\" is no cgroup's path: as /a/b is wanted");
  EXPECT_EQ(ValueOf("memory.max", "/=1"), "the root cgroup has no memory.max");
  EXPECT_EQ(ValueOf("memory.max", "/a=-5"),
            "\"-5\" is not an amount: bytes are wanted, as 4096, 512M or 16G, or max, or a share as 50%");
  EXPECT_EQ(
      ValueOf("memory.max", "/a=9223372036854775808"),
      "\"9223372036854775808\" is too much: bytes are wanted, as 4096, 512M or 16G, or max, or a share as "
      "50%");
  EXPECT_EQ(ValueOf("memory.max", "/a=8388608T").substr(0, 24), "\"8388608T\" is too much: ");
  for (const char* text : {"", "x", "1.5M", "0x10", "+1", "1 M", "Max"}) {
    EXPECT_NE(ValueOf("memory.max", std::string("/a=") + text).find("is not an amount"), std::string::npos)
        << text;
  }
  for (const char* text : {"%", "101%", "-1%", "1.5%", "99999999999%"}) {
    EXPECT_NE(ValueOf("memory.max", std::string("/a=") + text).find("is no share: 0% to 100%"),
              std::string::npos)
        << text;
  }
  EXPECT_EQ(ValueOf("memory.swappiness", "/a=201"), "\"201\" is not wanted: 0 to 200 are");
  EXPECT_EQ(ValueOf("memory.swappiness", "/a=-1"), "\"-1\" is not wanted: 0 to 200 are");
  EXPECT_EQ(ValueOf("memory.oom.group", "/a=2"), "\"2\" is not wanted: 0 to 1 are");
}

class CgroupKnobsTest : public testing::Test {
 protected:
  std::string Appear(CgroupKnobs& knobs, const std::string& path) {
    std::string set;
    knobs.Appear(path, [&set](const CgroupKnob& knob) { set += knob.path + " " + knob.value + ";"; });
    return set;
  }
};

TEST_F(CgroupKnobsTest, AreDueWhenTheirCgroupAppearsAndAgainWhenItIsMadeAnew) {
  CgroupKnobs knobs({{"/a/b", "memory.max", "1"}, {"/a", "memory.max", "2"}, {"/a", "memory.low", "3"}});
  EXPECT_EQ(Appear(knobs, "/ab"), "");
  EXPECT_EQ(Appear(knobs, "/a/b/c"), "/a/b 1;/a 2;/a 3;") << "ancestors come with it";
  EXPECT_EQ(Appear(knobs, "/a/b/d"), "");
  knobs.Remove("/a/b");
  EXPECT_EQ(Appear(knobs, "/a/b"), "/a/b 1;");
  EXPECT_TRUE(knobs.missed().empty());
}

TEST_F(CgroupKnobsTest, ACgroupThatIsThereIsSetAtTheStart) {
  CgroupKnobs knobs({{"/a", "memory.max", "1", true}});
  std::string set;
  knobs.Begin([&set](const CgroupKnob& knob) { set += knob.path; });
  EXPECT_EQ(set, "/a");
  EXPECT_TRUE(knobs.missed().empty());
}

TEST_F(CgroupKnobsTest, WhatNeverAppearedNamesTheNearestPath) {
  CgroupKnobs knobs(
      {{"/team/wev", "memory.max", "1"}, {"/team/wev", "memory.low", "1"}, {"/x", "memory.max", "1"}});
  EXPECT_EQ(knobs.missed().size(), 2u);
  EXPECT_EQ(knobs.missed()[0].nearest, "");
  for (const char* path : {"/team", "/team/web", "/team/api"}) Appear(knobs, path);
  EXPECT_EQ(knobs.missed()[0].path, "/team/wev");
  EXPECT_EQ(knobs.missed()[0].nearest, "/team/web");
  EXPECT_EQ(knobs.missed()[1].nearest, "/team");
}

}  // namespace
}  // namespace memcgd::client
