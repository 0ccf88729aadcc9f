#include "server/tokens.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace memcgd::server {
namespace {

constexpr char kHash[] = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";  // of "test"

class TokensTest : public testing::Test {
 protected:
  TokensTest() : file_(testing::TempDir() + "/tokens_test." + std::to_string(getpid())) {}
  ~TokensTest() override { std::filesystem::remove(file_); }

  absl::StatusOr<std::shared_ptr<const Tokens>> Read(const std::string& text) {
    std::ofstream(file_) << text;
    return Tokens::Read(file_);
  }
  // What is wrong with a file of that text, without the file's name.
  std::string ErrorOf(const std::string& text) {
    const std::string error(Read(text).status().message());
    const std::string prefix = "token file " + file_ + ", ";
    EXPECT_EQ(error.substr(0, prefix.size()), prefix);
    return error.substr(std::min(error.size(), prefix.size()));
  }
  static std::string One(const std::string& rest) {
    return std::string("tokens:\n  - sha256: ") + kHash + "\n" + rest;
  }

  const std::string file_;
};

TEST_F(TokensTest, APrefixIsOfTheNodesName) {
  const auto tokens =
      Read(One("    tenant: a\n    write: [a-, '']\n    expires: 2030-01-01T00:00:00+01:00\n"));
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  const Grant* grant = (*tokens)->Find("test");
  ASSERT_NE(grant, nullptr);
  EXPECT_EQ(grant->tenant, "a");
  EXPECT_TRUE(grant->MayWrite("b"));
  EXPECT_EQ(absl::ToUnixSeconds(grant->expires), 1893452400);
  EXPECT_EQ((*tokens)->Find("tesT"), nullptr);
  EXPECT_EQ((*tokens)->Find(""), nullptr);
}

TEST_F(TokensTest, WhoMayWriteMayRead) {
  const auto tokens = Read(One("    tenant: a\n    write: [a-]\n    read: [b-]\n"));
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  const Grant* grant = (*tokens)->Find("test");
  EXPECT_TRUE(grant->MayWrite("a-1") && grant->MayRead("a-1") && grant->MayRead("b-1"));
  EXPECT_FALSE(grant->MayWrite("b-1") || grant->MayRead("c") || grant->MayRead("a"));
}

TEST_F(TokensTest, ErrorsNameLineAndWhatIsWrong) {
  EXPECT_EQ(ErrorOf("tokens: [\n"), "line 2: end of sequence flow not found");
  EXPECT_EQ(ErrorOf("users: []\n"), "line 1: one key is wanted, tokens, with a list");
  EXPECT_EQ(ErrorOf(One("    write: [a]\n")), "line 2: a token without tenant");
  EXPECT_EQ(ErrorOf(One("    tenant: a\n")), "line 2: a token that may neither read nor write");
  EXPECT_EQ(ErrorOf(One("    tenant: a b\n")),
            "line 3: a tenant's name is 1 … 128 letters, digits, '.', '-' and '_', not \"a b\"");
  EXPECT_EQ(ErrorOf(One("    tenant: a\n    rights: all\n")),
            "line 4: key \"rights\" is unknown; there are sha256, tenant, read, write, expires");
  EXPECT_EQ(ErrorOf(One("    tenant: a\n    tenant: b\n")), "line 4: key \"tenant\" stands twice");
  EXPECT_EQ(ErrorOf(One("    expires: tomorrow\n")),
            "line 3: expires is no time of RFC 3339, as 2027-01-01T00:00:00Z");
  EXPECT_EQ(ErrorOf("tokens:\n  - sha256: test\n"),
            "line 2: sha256 is not 64 hexadecimal digits (printf %s TOKEN | sha256sum)");
  EXPECT_EQ(ErrorOf(One("    tenant: a\n    write: [a]\n") + "  - sha256: " + kHash +
                    "\n    tenant: b\n    read: [a]\n"),
            "line 5: the same sha256 stands twice");
}

}  // namespace
}  // namespace memcgd::server
