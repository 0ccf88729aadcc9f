#include "server/config.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace memcgd::server {
namespace {

class ConfigTest : public testing::Test {
 protected:
  ConfigTest() : directory_(testing::TempDir() + "/config_test." + std::to_string(getpid())) {
    mkdir(directory_.c_str(), 0700);
    for (const char* name : kVariables) unsetenv(name);
  }
  ~ConfigTest() override {
    for (const char* name : kVariables) unsetenv(name);
  }

  static CommandLine Read(std::vector<std::string> arguments) {
    std::vector<const char*> argv = {"memcgd"};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    return ReadCommandLine(static_cast<int>(argv.size()), argv.data());
  }

  // The one line of a usage error.
  static std::string ErrorOf(const std::vector<std::string>& arguments) {
    const CommandLine line = Read(arguments);
    EXPECT_EQ(line.exit_code, kExitUsage);
    EXPECT_TRUE(line.text.ends_with("\n"));
    EXPECT_EQ(line.text.find('\n'), line.text.size() - 1) << line.text;
    return line.text.substr(0, line.text.size() - 1);
  }

  std::string File(const std::string& text) {
    const std::string file = directory_ + "/memcgd.yaml";
    std::ofstream(file) << text;
    return file;
  }

  // What is wrong with a file of that text, without the words before it.
  std::string ErrorOfFile(const std::string& text) {
    const std::string file = File(text);
    const std::string error = ErrorOf({"--config", file});
    const std::string prefix = "memcgd: config file " + file;
    EXPECT_TRUE(error.starts_with(prefix)) << error;
    return error.substr(std::min(error.size(), prefix.size()));
  }

  static constexpr const char* kVariables[] = {
      "MEMCGD_LISTEN",    "MEMCGD_METRICS_LISTEN", "MEMCGD_LOG_LEVEL", "MEMCGD_APPLY_THREADS",
      "MEMCGD_PORT_FILE", "MEMCGD_CONFIG",         "MEMCGD_PIN",       "MEMCGD_INSECURE",
      "MEMCGD_TLS_CERT",  "MEMCGD_TOKEN_FILE",     "MEMCGD_MAX_NODES", "MEMCGD_MEMORY_BUDGET"};
  const std::string directory_;
};

TEST_F(ConfigTest, DefaultsAreLoopback) {
  const CommandLine line = Read({});
  ASSERT_FALSE(line.exit_code.has_value()) << line.text;
  EXPECT_EQ(line.config.listen.Text(), "127.0.0.1:7077");
  EXPECT_EQ(line.config.metrics_listen->Text(), "127.0.0.1:9477");
  EXPECT_EQ(line.config.log_level, "info");
  EXPECT_EQ(line.config.apply_threads, 0u);
  EXPECT_EQ(line.config.port_file, "");
}

TEST_F(ConfigTest, AFlagBeatsTheEnvironmentWhichBeatsTheFile) {
  const std::string file = File("listen: 127.0.0.1:1\nmetrics-listen: 127.0.0.1:1\nlog-level: warn\n");
  setenv("MEMCGD_LISTEN", "127.0.0.1:2", 1);
  setenv("MEMCGD_METRICS_LISTEN", "127.0.0.1:2", 1);
  const CommandLine line = Read({"--config", file, "--listen", "127.0.0.1:3"});
  ASSERT_FALSE(line.exit_code.has_value()) << line.text;
  EXPECT_EQ(line.config.listen.Text(), "127.0.0.1:3");
  EXPECT_EQ(line.config.metrics_listen->Text(), "127.0.0.1:2");
  EXPECT_EQ(line.config.log_level, "warn");
}

TEST_F(ConfigTest, TheFileMayBeNamedByTheEnvironment) {
  setenv("MEMCGD_CONFIG", File("apply-threads: 3\n").c_str(), 1);
  const CommandLine line = Read({});
  ASSERT_FALSE(line.exit_code.has_value()) << line.text;
  EXPECT_EQ(line.config.apply_threads, 3u);
}

TEST_F(ConfigTest, MetricsCanBeSwitchedOff) {
  EXPECT_FALSE(Read({"--metrics-listen", "off"}).config.metrics_listen.has_value());
  EXPECT_FALSE(Read({"--metrics-listen", ""}).config.metrics_listen.has_value());
  EXPECT_FALSE(Read({"--metrics-listen="}).config.metrics_listen.has_value());
}

TEST_F(ConfigTest, ListenTakesUnixSocketsAndIpv6) {
  EXPECT_EQ(Read({"--listen", "unix:/run/memcgd.sock"}).config.listen.unix_path, "/run/memcgd.sock");
  EXPECT_EQ(Read({"--listen", "[::1]:0"}).config.listen.Text(), "[::1]:0");
}

TEST_F(ConfigTest, PinTakesCpusThatAreThere) {
  cpu_set_t usable;
  ASSERT_EQ(sched_getaffinity(0, sizeof(usable), &usable), 0);
  uint32_t first = 0;
  while (!CPU_ISSET(first, &usable)) ++first;
  const std::string cpu = std::to_string(first);
  EXPECT_TRUE(Read({}).config.pin.empty());
  EXPECT_EQ(Read({"--pin", cpu}).config.pin, std::vector<uint32_t>{first});
  EXPECT_EQ(Read({"--pin", cpu + "-" + cpu}).config.pin, std::vector<uint32_t>{first});
  EXPECT_EQ(Read({"--config", File("pin: " + cpu + "\n")}).config.pin, std::vector<uint32_t>{first});
  EXPECT_EQ(ErrorOf({"--pin", cpu + "," + cpu}),
            "memcgd: --pin: \"" + cpu + "," + cpu + "\" names CPU " + cpu + " twice");
  for (const std::string text : {"x", "1-0", "-1", "0-", ",", "8192", "99999999999"}) {
    EXPECT_EQ(ErrorOf({"--pin", text}), "memcgd: --pin: \"" + text + "\" is no list of CPUs, as 0-3,8");
  }
  EXPECT_NE(ErrorOf({"--pin", "8191"}).find("\"8191\": CPU 8191 is not there; this process may use "),
            std::string::npos);
}

TEST_F(ConfigTest, HelpVersionAndCheckExitWithoutError) {
  EXPECT_EQ(Read({"--version"}).exit_code, kExitOk);
  EXPECT_EQ(Read({"--version"}).text.substr(0, 7), "memcgd ");
  EXPECT_EQ(Read({"--help"}).exit_code, kExitOk);
  EXPECT_EQ(Read({"--check-config"}).text, "configuration ok\n");
  EXPECT_EQ(Read({"--check-config", "--listen", "x"}).exit_code, kExitUsage);
}

TEST_F(ConfigTest, ABadFlagIsOneLine) {
  EXPECT_EQ(ErrorOf({"--listen", "7077"}), "memcgd: --listen: \"7077\" is neither HOST:PORT nor unix:PATH");
  EXPECT_EQ(ErrorOf({"--listen", "localhost:70000"}),
            "memcgd: --listen: \"localhost:70000\" has a port that is not 0 … 65535");
  EXPECT_EQ(ErrorOf({"--listen", "localhost:"}),
            "memcgd: --listen: \"localhost:\" has a port that is not 0 … 65535");
  EXPECT_EQ(ErrorOf({"--listen", "::1:80"}),
            "memcgd: --listen: \"::1:80\" needs brackets around its IPv6 address");
  EXPECT_EQ(ErrorOf({"--listen", ":80"}),
            "memcgd: --listen: \":80\" has no host; 0.0.0.0 or [::] is every address");
  EXPECT_EQ(ErrorOf({"--listen", "unix:"}), "memcgd: --listen: \"unix:\" has no path after unix:");
  EXPECT_EQ(ErrorOf({"--metrics-listen", "unix:/x"}),
            "memcgd: --metrics-listen: \"unix:/x\" is a unix socket; give HOST:PORT");
  EXPECT_EQ(ErrorOf({"--log-level", "loud"}),
            "memcgd: --log-level: \"loud\" is not trace, debug, info, warn, error or off");
  EXPECT_EQ(ErrorOf({"--apply-threads", "-1"}), "memcgd: --apply-threads: \"-1\" is not a number 0 … 256");
  EXPECT_NE(ErrorOf({"--frobnicate"}).find("--frobnicate"), std::string::npos);
  EXPECT_NE(ErrorOf({"--listen"}).find("--listen"), std::string::npos);
  EXPECT_NE(ErrorOf({"extra"}).find("extra"), std::string::npos);
}

TEST_F(ConfigTest, ABadVariableIsOneLine) {
  setenv("MEMCGD_LOG_LEVEL", "loud", 1);
  EXPECT_EQ(ErrorOf({}), "memcgd: --log-level: \"loud\" is not trace, debug, info, warn, error or off");
}

TEST_F(ConfigTest, ABadFileNamesFileKeyAndLine) {
  EXPECT_EQ(ErrorOfFile("# a comment\nlisten: 127.0.0.1:1\nlissten: x\n"),
            ", line 3: key \"lissten\" is unknown");
  EXPECT_EQ(ErrorOfFile("\napply-threads: many\n"),
            ", line 2: key \"apply-threads\": \"many\" is not a number 0 … 256");
  EXPECT_EQ(ErrorOfFile("listen:\n  - 127.0.0.1:1\n"),
            ", line 1: key \"listen\" has a list or a map, not a value");
  EXPECT_EQ(ErrorOfFile("listen:\n"), ", line 1: key \"listen\" has no value");
  EXPECT_EQ(ErrorOfFile("listen: 127.0.0.1:1\nlisten: 127.0.0.1:2\n"),
            ", line 2: key \"listen\" stands in line 1 too");
  EXPECT_EQ(ErrorOfFile("- listen\n"), ", line 1: is not a map of settings");
  EXPECT_TRUE(ErrorOfFile("listen: [127\nlog-level: x\n").starts_with(", line ")) << "not YAML";
  EXPECT_TRUE(ErrorOfFile("log-level: info\n\tlisten: x\n").starts_with(", line 2")) << "a tab";
}

TEST_F(ConfigTest, TheFileIsCheckedWhereAFlagBeatsItToo) {
  const std::string file = File("listen: nonsense\n");
  EXPECT_EQ(ErrorOf({"--config", file, "--listen", "127.0.0.1:1"}),
            "memcgd: config file " + file +
                ", line 1: key \"listen\": \"nonsense\" is neither HOST:PORT nor "
                "unix:PATH");
}

TEST_F(ConfigTest, AFileThatCannotBeReadIsNamed) {
  const std::string missing = directory_ + "/none.yaml";
  EXPECT_EQ(ErrorOf({"--config", missing}), "memcgd: config file " + missing + ": No such file or directory");
  EXPECT_EQ(ErrorOf({"--config", directory_}), "memcgd: config file " + directory_ + ": is a directory");
  const std::string fifo = directory_ + "/fifo";
  mkfifo(fifo.c_str(), 0600);
  EXPECT_EQ(ErrorOf({"--config", fifo}), "memcgd: config file " + fifo + ": is not a regular file");
  const std::string locked = File("listen: x\n");
  chmod(locked.c_str(), 0);
  if (geteuid() != 0) {  // root reads everything
    EXPECT_EQ(ErrorOf({"--config", locked}), "memcgd: config file " + locked + ": Permission denied");
  }
  chmod(locked.c_str(), 0600);
}

TEST_F(ConfigTest, LimitsAreNumbersInTheirRange) {
  const CommandLine line = Read({"--max-nodes", "7", "--memory-budget", "2G", "--stream-idle", "0"});
  EXPECT_EQ(line.config.limits.nodes, 7u);
  EXPECT_EQ(line.config.limits.memory_bytes, uint64_t{2} << 30);
  EXPECT_EQ(line.config.limits.stream_idle, std::chrono::seconds(0));
  EXPECT_EQ(line.config.limits.node.cgroups, 200'000u);
  EXPECT_EQ(Read({"--config", File("max-pages: 1000\n")}).config.limits.node.pages, 1000u);
  EXPECT_EQ(ErrorOf({"--max-nodes", "0"}), "memcgd: --max-nodes: \"0\" is not a number 1 … 1000000");
  EXPECT_EQ(ErrorOf({"--max-pages", "201326593"}),
            "memcgd: --max-pages: \"201326593\" is not a number 1 … 201326592");
  for (const char* bad : {"", "1", "63M", "G", "2X", "-1G", "99999999T"}) {
    EXPECT_EQ(ErrorOf({"--memory-budget", bad}), std::string("memcgd: --memory-budget: \"") + bad +
                                                     "\" is neither auto nor bytes from 64M to 1024T, as 4G");
  }
}

TEST_F(ConfigTest, ASwitchStandsAloneOrHasAValueInTheFile) {
  EXPECT_TRUE(Read({"--insecure"}).config.insecure);
  EXPECT_FALSE(Read({}).config.insecure);
  setenv("MEMCGD_INSECURE", "true", 1);
  EXPECT_TRUE(Read({"--listen", "0.0.0.0:1"}).config.insecure);
  unsetenv("MEMCGD_INSECURE");
  EXPECT_EQ(ErrorOfFile("insecure: perhaps\n"),
            ", line 1: key \"insecure\": \"perhaps\" is neither true nor false");
}

TEST_F(ConfigTest, AnEmptyFileChangesNothing) {
  EXPECT_EQ(Read({"--config", File("")}).config.listen.Text(), "127.0.0.1:7077");
  EXPECT_EQ(Read({"--config", File("# nothing yet\n")}).config.listen.Text(), "127.0.0.1:7077");
}

}  // namespace
}  // namespace memcgd::server
