#include "core/cgroup_path.h"

#include <gtest/gtest.h>

#include <string>

namespace memcgd::core {
namespace {

TEST(CgroupPathTest, RootAndPartsAreTaken) {
  for (const char* path : {"/", "/a", "/a/b", "/system.slice/x-y (z).scope", "/...", "/a/.hidden"}) {
    EXPECT_TRUE(CheckCgroupPath(path).ok()) << path;
  }
  EXPECT_TRUE(CheckCgroupPath("/\xff\xfe").ok());
  EXPECT_TRUE(CheckCgroupPath("/" + std::string(255, 'a')).ok());
}

TEST(CgroupPathTest, WhatIsNoPathIsRefused) {
  for (const std::string& path :
       {std::string(), std::string("a"), std::string("/a/"), std::string("//"), std::string("/a//b"),
        std::string("/."), std::string("/.."), std::string("/a/../b"), std::string("/a\nb"),
        std::string("/a\0b", 4), "/" + std::string(256, 'a')}) {
    EXPECT_EQ(CheckCgroupPath(path).code(), absl::StatusCode::kInvalidArgument) << path;
  }
}

TEST(CgroupPathTest, AtMost4096Bytes) {
  std::string path;
  while (path.size() < 4096) path += "/abcdefg";
  EXPECT_TRUE(CheckCgroupPath(path).ok());
  EXPECT_FALSE(CheckCgroupPath(path + "h").ok());
}

}  // namespace
}  // namespace memcgd::core
