#include "core/knobs.h"

#include <gtest/gtest.h>

#include "core/page_counter.h"

namespace memcgd::core {
namespace {

std::string Checked(std::string_view knob, std::string_view value, uint32_t page_size = 4096) {
  absl::StatusOr<std::string> shown = CheckKnob(knob, value, page_size);
  return shown.ok() ? *shown : "refused: " + std::string(shown.status().message());
}
bool Refused(std::string_view knob, std::string_view value) {
  absl::Status status = CheckKnob(knob, value, 4096).status();
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
