#include "core/knobs.h"

#include <gtest/gtest.h>

#include "core/page_counter.h"

namespace memcgd::core {
namespace {

std::string Checked(std::string_view knob, std::string_view value, uint32_t page_size = 4096) {
  absl::StatusOr<std::string> shown =
      CheckKnob(knob, value, {.page = page_size, .memory = 1001 << 12, .swap = 200 << 12});
  return shown.ok() ? *shown : "refused: " + std::string(shown.status().message());
}
bool Refused(std::string_view knob, std::string_view value) {
  absl::Status status = CheckKnob(knob, value, {}).status();
  bool names_knob = status.message().find(knob.data(), 0, knob.size()) != absl::string_view::npos;
  return status.code() == absl::StatusCode::kInvalidArgument && names_knob;
}

TEST(KnobsTest, AmountsTakeMaxAndSuffixesAndAreRoundedDownToPages) {
  for (const char* knob :
       {"memory.min", "memory.low", "memory.high", "memory.max", "memory.swap.high", "memory.swap.max"}) {
    EXPECT_EQ(Checked(knob, "max"), "max");
    EXPECT_EQ(Checked(knob, "0"), "0");
    EXPECT_EQ(Checked(knob, "4095"), "0");
    EXPECT_EQ(Checked(knob, "8191"), "4096");
    EXPECT_EQ(Checked(knob, "1k"), "0");
    EXPECT_EQ(Checked(knob, "8K"), "8192");
    EXPECT_EQ(Checked(knob, "1m"), "1048576");
    EXPECT_EQ(Checked(knob, "2G"), "2147483648");
    EXPECT_EQ(Checked(knob, "1T"), "1099511627776");
  }
  EXPECT_EQ(Checked("memory.max", "131071", 65536), "65536");
}

TEST(KnobsTest, WhatCannotBeHeldIsRefused) {
  for (const char* value : {"", " 1", "-1", "+1", "1 ", "1KB", "1Q", "0x10", "1.5G", "maximum",
                            "18446744073709551616", "16E", "9223372036854775808", "99999999999999999999G"}) {
    EXPECT_TRUE(Refused("memory.max", value)) << value;
  }
}

// Of 1001 pages of memory and 200 of swap.
TEST(KnobsTest, SharesAreOfTheNodesMemoryAndSwap) {
  EXPECT_EQ(Checked("memory.max", "50%"), std::to_string(500 << 12));
  EXPECT_EQ(Checked("memory.low", "100%"), std::to_string(1001 << 12));
  EXPECT_EQ(Checked("memory.high", "0%"), "0");
  EXPECT_EQ(Checked("memory.swap.max", "50%"), std::to_string(100 << 12));
  EXPECT_EQ(Checked("memory.swap.high", "25%"), std::to_string(50 << 12));
  for (const char* value : {"%", "101%", "-1%", "1.5%", "50 %", "50%%", "99999999999999999999%"})
    EXPECT_TRUE(Refused("memory.max", value)) << value;
  EXPECT_TRUE(Refused("memory.swappiness", "50%"));
  EXPECT_TRUE(Refused("memory.oom.group", "0%"));
}

TEST(KnobsTest, WhatIsAskedOfReclaimIsReadAsTheKernelReadsIt) {
  const auto pages = [](std::string_view request) {
    const absl::StatusOr<ReclaimRequest> parsed = ParseReclaimRequest(request, 4096);
    return parsed.ok() ? parsed->pages : -1;
  };
  EXPECT_EQ(pages("1M"), 256);
  EXPECT_EQ(pages("4095"), 0);
  EXPECT_EQ(pages("0"), 0);
  EXPECT_EQ(pages("8K swappiness=60"), 2);
  EXPECT_EQ(ParseReclaimRequest("8K swappiness=60", 4096)->swappiness, 60u);
  EXPECT_EQ(ParseReclaimRequest("8K swappiness=max", 4096)->swappiness, 201u);
  EXPECT_FALSE(ParseReclaimRequest("8K", 4096)->swappiness.has_value());
  for (const char* request : {"", "max", "-1", "50%", "1M ", "1M swappiness=", "1M swappiness=201",
                              "1M swappiness=-1", "1M swap=1", "9223372036854775808", "1M  swappiness=1"}) {
    EXPECT_EQ(pages(request), -1) << request;
    EXPECT_NE(ParseReclaimRequest(request, 4096).status().message().find("memory.reclaim takes bytes"),
              absl::string_view::npos);
  }
}

TEST(KnobsTest, FlagsAndSwappinessHaveTheirRanges) {
  EXPECT_EQ(Checked("memory.oom.group", "1"), "1");
  EXPECT_TRUE(Refused("memory.oom.group", "2"));
  EXPECT_TRUE(Refused("memory.oom.group", "max"));
  EXPECT_EQ(Checked("memory.swappiness", "200"), "200");
  EXPECT_TRUE(Refused("memory.swappiness", "201"));
}

TEST(KnobsTest, AnUnknownKnobIsNamed) {
  EXPECT_TRUE(Refused("memory.maxx", "1"));
  EXPECT_TRUE(Refused("", "1"));
}

TEST(KnobsTest, PagesOfACheckedAmount) {
  EXPECT_EQ(KnobPages("max", 4096), PageCounter::kMax);
  EXPECT_EQ(KnobPages("8192", 4096), 2);
  EXPECT_EQ(KnobPages("131072", 65536), 2);
}

}  // namespace
}  // namespace memcgd::core
