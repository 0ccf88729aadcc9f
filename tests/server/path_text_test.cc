#include "server/path_text.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>

namespace memcgd::server {
namespace {

TEST(PathTextTest, WhatIsUtf8StandsForItself) {
  for (const std::string path : {"/", "/a/b", "/system.slice/system-getty\\x2dtty1.service", "/größe/日本/🐧",
                                 "/a\\b", "/\\", "/\\x", "/\\x8", "/\\xg0", "/\\x5c", "/tab\there"}) {
    EXPECT_EQ(PathToText(path), path);
    EXPECT_EQ(PathFromText(path), path);
  }
}

TEST(PathTextTest, OtherBytesAreEscaped) {
  EXPECT_EQ(PathToText("/a\xff/\x80z"), "/a\\xff/\\x80z");
  EXPECT_EQ(PathToText("/\xc3\xa4\xc3"), "/\xc3\xa4\\xc3") << "a character cut short";
  EXPECT_EQ(PathToText("\xc0\xaf"), "\\xc0\\xaf") << "overlong";
  EXPECT_EQ(PathToText("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(PathToText("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "past U+10FFFF";
  EXPECT_EQ(PathFromText("/\\xFF\\xfe"), "/\xff\xfe") << "either case";
}

TEST(PathTextTest, ABackslashThatWouldEscapeIsEscaped) {
  for (const auto& [path, text] : {std::pair<std::string, std::string>{"/\\x80", "/\\x5cx80"},
                                   {"/\\x5cx80", "/\\x5cx5cx80"},
                                   {"/\\x5C", "/\\x5C"},
                                   {"/\\\\xff", "/\\\\x5cxff"}}) {
    EXPECT_EQ(PathToText(path), text);
    EXPECT_EQ(PathFromText(text), path);
  }
}

TEST(PathTextTest, AnyBytesSurviveTheWayThereAndBack) {
  // Of pieces that escapes are made of, so that they meet.
  const std::string pieces[] = {"\\", "x",    "5",    "c",    "C",    "8",
                                "f",  "\x80", "\xff", "\xc3", "\xa4", "\xf0\x9f\x90\xa7"};
  std::mt19937 random(7);
  for (int i = 0; i < 200'000; ++i) {
    std::string path;
    for (unsigned length = random() % 12; length > 0; --length) path += pieces[random() % std::size(pieces)];
    const std::string text = PathToText(path);
    ASSERT_EQ(PathFromText(text), path) << text;
    ASSERT_EQ(PathToText(PathFromText(text)), text);
  }
}

}  // namespace
}  // namespace memcgd::server
