#include "server/data_dir.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "server_fixture.h"

namespace memcgd::server {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class DataDirTest : public ServerFixture {
 protected:
  DataDirTest() {
    server_.reset();
    std::string pattern = (fs::temp_directory_path() / "memcgd-data-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
    config_ = {.listen = {.host = "127.0.0.1"}, .data_dir = path_};
    Start(config_);
  }
  ~DataDirTest() override {
    server_.reset();
    fs::remove_all(path_);
  }

  // As SIGTERM does.
  absl::Status Stop() {
    server_->Drain(std::chrono::milliseconds(2000));
    absl::Status status = server_->Save();
    server_.reset();
    return status;
  }
  // As SIGKILL does.
  void Crash() { server_.reset(); }
  void Restart() {
    ASSERT_TRUE(Stop().ok());
    Start(config_);
  }
  // Why the server does not start.
  std::string Refusal() {
    const auto server = Server::Start(config_);
    return server.ok() ? "" : std::string(server.status().message());
  }

  std::string FileOf(const std::string& node) { return path_ + "/nodes/" + node; }
  static std::string Read(const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    return text.str();
  }
  static void Write(const std::string& file, std::string_view bytes) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  }

  uint64_t StateHash(const std::string& node) {
    v1::Node read;
    EXPECT_TRUE(GetNode(node, &read).ok());
    return read.state_hash();
  }
  // A batch of one fault, and a mark.
  static v1::Batch Marked(uint64_t sequence) {
    v1::Batch batch = BatchOf(sequence, {Fault(100, 0x7f00'0000'0000 + 4096 * sequence)});
    AddMark(sequence, &batch);
    return batch;
  }
  // Batches first … last of stream "s".
  void Apply(uint64_t first, uint64_t last) {
    Feed feed(ingest_.get(), "n");
    const auto opened = feed.Open("s");
    ASSERT_TRUE(opened.has_value());
    ASSERT_EQ(opened->next_sequence(), first);
    for (uint64_t sequence = first; sequence <= last; ++sequence)
      ASSERT_TRUE(feed.Apply(Marked(sequence)).has_value());
    ASSERT_TRUE(feed.End().ok());
  }

  std::string path_;
  Config config_;
};

TEST_F(DataDirTest, ANodeGoesOnWhereItStood) {
  v1::Node made;
  ASSERT_TRUE(CreateNode("n", &made).ok());
  ASSERT_TRUE(CreateCgroup("n", "/job").ok());
  Apply(1, 3);
  const uint64_t hash = StateHash("n");
  Restart();
  EXPECT_EQ(StateHash("n"), hash);

  Feed feed(ingest_.get(), "n");
  const auto opened = feed.Open("s", made.incarnation());
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ(opened->incarnation(), made.incarnation());
  EXPECT_EQ(opened->next_sequence(), 4);
  EXPECT_EQ(opened->durable_through(), 3);
  // What the last connection may not have brought is had again, and a repeat with other content is known.
  std::vector<v1::State> states;
  const auto repeated = feed.Apply(Marked(3), &states);
  ASSERT_TRUE(repeated.has_value());
  EXPECT_EQ(states.size(), 1);
  const auto ack = feed.Apply(Marked(4), &states);
  ASSERT_TRUE(ack.has_value());
  EXPECT_EQ(ack->durable_through(), 3) << "what came after is not saved yet";
  feed.Write(BatchOf(2, {Fault(7, 0x1000)}));
  EXPECT_EQ(feed.End().error_code(), grpc::StatusCode::ALREADY_EXISTS);
}

TEST_F(DataDirTest, TwoLivesGiveTheStateOfOne) {
  ASSERT_TRUE(CreateNode("n").ok());
  Apply(1, 2);
  Restart();
  Apply(3, 4);
  Restart();
  Apply(5, 6);
  const uint64_t hash = StateHash("n");
  ASSERT_TRUE(DeleteNode("n").ok());
  ASSERT_TRUE(CreateNode("n").ok());
  Apply(1, 6);
  EXPECT_EQ(StateHash("n"), hash);
}

TEST_F(DataDirTest, AfterACrashNodesAreAsSavedLastAndSayThatTheyAreNotTheSame) {
  v1::Node made, now;
  ASSERT_TRUE(CreateNode("n", &made).ok());
  Apply(1, 2);
  const uint64_t hash = StateHash("n");
  Restart();
  Apply(3, 5);
  Crash();
  Start(config_);
  EXPECT_EQ(StateHash("n"), hash);
  ASSERT_TRUE(GetNode("n", &now).ok());
  EXPECT_NE(now.incarnation(), made.incarnation());

  Feed old(ingest_.get(), "n");
  EXPECT_FALSE(old.Open("s", made.incarnation()).has_value());
  EXPECT_EQ(old.End().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  Apply(3, 5);  // from durable_through + 1
}

TEST_F(DataDirTest, ADeletedNodeDoesNotComeBack) {
  ASSERT_TRUE(CreateNode("n").ok());
  ASSERT_TRUE(CreateNode("m").ok());
  Restart();
  ASSERT_TRUE(DeleteNode("n").ok());
  Crash();
  Start(config_);
  v1::Node node;
  EXPECT_EQ(GetNode("n", &node).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(GetNode("m", &node).ok());
}

TEST_F(DataDirTest, TheDirectoryHasOneServer) {
  EXPECT_THAT(Refusal(), AllOf(HasSubstr(path_), HasSubstr(std::to_string(getpid())), HasSubstr("stop it")));
}

TEST_F(DataDirTest, AServerThatCannotListenLeavesNodesAsTheyWere) {
  v1::Node made, now;
  ASSERT_TRUE(CreateNode("n", &made).ok());
  ASSERT_TRUE(Stop().ok());
  ServerFixture::Start(Config{.listen = {.host = "127.0.0.1"}});
  const std::string address = server_->address();
  Config busy = config_;
  busy.listen.port = static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  EXPECT_FALSE(Server::Start(busy).ok());
  server_.reset();
  Start(config_);
  ASSERT_TRUE(GetNode("n", &now).ok());
  EXPECT_EQ(now.incarnation(), made.incarnation());
}

TEST_F(DataDirTest, EveryDamagedByteIsNoticedAndNothingIsLost) {
  ASSERT_TRUE(CreateNode("n").ok());
  ASSERT_TRUE(CreateNode("other").ok());
  Apply(1, 2);
  const uint64_t hash = StateHash("n");
  ASSERT_TRUE(Stop().ok());
  const std::string good = Read(FileOf("n"));
  ASSERT_GT(good.size(), 100);
  for (size_t at = 0; at < good.size(); at += at < 64 ? 1 : good.size() / 50) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    Write(FileOf("n"), bad);
    EXPECT_THAT(Refusal(), AllOf(HasSubstr(FileOf("n")), HasSubstr("move it away"))) << "byte " << at;
    EXPECT_EQ(Read(FileOf("n")), bad);
  }
  for (size_t size = 0; size < good.size(); size += size < 64 ? 1 : good.size() / 20) {
    Write(FileOf("n"), good.substr(0, size));
    EXPECT_THAT(Refusal(), HasSubstr(FileOf("n"))) << size << " bytes";
  }
  Write(FileOf("n"), good + "x");
  EXPECT_THAT(Refusal(), HasSubstr("damaged"));
  Write(FileOf("n"), good);
  Start(config_);
  EXPECT_EQ(StateHash("n"), hash);
}

TEST_F(DataDirTest, FilesOfAnotherKindAreNamed) {
  ASSERT_TRUE(CreateNode("n").ok());
  ASSERT_TRUE(Stop().ok());
  const std::string good = Read(FileOf("n"));

  std::string later = good;
  later[12] = 9;
  Write(FileOf("n"), later);
  EXPECT_THAT(Refusal(), HasSubstr("has format version 9, and this memcgd reads 1"));
  std::string later_core = good;
  later_core[good.find("memcgd-node\n") + 12] = 99;
  Write(FileOf("n"), later_core);
  EXPECT_THAT(Refusal(), HasSubstr("version 99"));
  Write(FileOf("n"), good);

  fs::rename(FileOf("n"), FileOf("m"));
  EXPECT_THAT(Refusal(), HasSubstr("holds node \"n\": it was renamed"));
  fs::rename(FileOf("m"), FileOf("n"));

  Write(FileOf("has space"), good);
  EXPECT_THAT(Refusal(), HasSubstr("no node has such a name"));
  fs::remove(FileOf("has space"));
  fs::create_directory(FileOf("directory"));
  EXPECT_THAT(Refusal(), HasSubstr("is no regular file"));
  fs::remove(FileOf("directory"));
  ASSERT_EQ(mkfifo(FileOf("fifo").c_str(), 0600), 0);
  EXPECT_THAT(Refusal(), HasSubstr("is no regular file"));
  fs::remove(FileOf("fifo"));
  Write(FileOf("huge"), "x");
  fs::resize_file(FileOf("huge"), (uintmax_t{16} << 30) + 1);  // a hole
  EXPECT_THAT(Refusal(), HasSubstr("more than a node's can have"));
  fs::remove(FileOf("huge"));
  EXPECT_EQ(Refusal(), "");
}

TEST_F(DataDirTest, WhatWasNotFinishedIsRemoved) {
  ASSERT_TRUE(Stop().ok());
  Write(path_ + "/tmp/n", "half");
  Start(config_);
  EXPECT_FALSE(fs::exists(path_ + "/tmp/n"));
}

TEST_F(DataDirTest, TheLongestNameHasAFile) {
  const std::string name(253, 'n');
  ASSERT_TRUE(CreateNode(name).ok());
  Restart();
  v1::Node node;
  EXPECT_TRUE(GetNode(name, &node).ok());
}

}  // namespace
}  // namespace memcgd::server
