// Installing production-sized data. Not part of a normal run: it wants gigabytes of disk and a
// quiet machine. Run with --gtest_also_run_disabled_tests --gtest_filter='*Scale*'.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "install/hub_server.h"
#include "install/local_install.h"
#include "install/production_headers.h"
#include "install/remote_install.h"
#include "install/test_support.h"

namespace mference {
namespace {

// Of this process; the kernel's own count.
uint64_t PeakRssBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  }
  return 0;
}

double SecondsOf(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// In a process of its own, so that its peak memory is its own too. Returns the seconds it took and
// prints figures.
double InstallInChild(const char* what, const std::function<InstallResult()>& install) {
  const double seconds = SecondsOf([&] {
    const pid_t child = fork();
    if (child == 0) {
      try {
        const InstallResult result = install();
        std::printf(
            "%s: %.1f s, peak RSS %.1f MiB, %llu ranges, %.2f GB read, %.2f GB written\n", what,
            result.audit.wall_time_s, static_cast<double>(PeakRssBytes()) / 1048576.0,
            static_cast<unsigned long long>(result.audit.range_count),
            static_cast<double>(result.audit.source_bytes + result.audit.verification_bytes) / 1e9,
            static_cast<double>(result.audit.output_bytes) / 1e9);
        std::fflush(stdout);
        _exit(PeakRssBytes() < (uint64_t{64} << 20) ? 0 : 2);
      } catch (const std::exception& error) {
        std::printf("%s: %s\n", what, error.what());
        std::fflush(stdout);
        _exit(1);
      }
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << what;
  });
  return seconds;
}

double CopyAndSync(const std::filesystem::path& root) {
  const double seconds = SecondsOf([&] {
    std::filesystem::create_directory(root / "copy");
    const std::string command = fmt::format("cp {0}/snapshot/* {0}/copy/ && sync", root.string());
    ASSERT_EQ(std::system(command.c_str()), 0);  // NOLINT(concurrency-mt-unsafe)
  });
  std::filesystem::remove_all(root / "copy");
  std::printf("cp && sync: %.1f s\n", seconds);
  return seconds;
}

double InstallFromHub(const char* what, const std::filesystem::path& root,
                      testing::HubStyle style) {
  int to_parent[2];
  EXPECT_EQ(pipe(to_parent), 0);
  const pid_t server = fork();
  if (server == 0) {
    const testing::HubServer hub(root / "snapshot", style);
    const std::string told = hub.base_url() + "\n" + hub.ca_file().string() + "\n";
    if (write(to_parent[1], told.data(), told.size()) > 0) pause();
    _exit(0);
  }
  char buffer[512] = {};
  EXPECT_GT(read(to_parent[0], buffer, sizeof(buffer) - 1), 0);
  std::istringstream told(buffer);
  RemoteOptions remote;
  std::string ca_file;
  std::getline(told, remote.base_url);
  std::getline(told, ca_file);
  remote.http.ca_file = ca_file;
  sync();
  const double seconds = InstallInChild(what, [&] {
    const RemoteTarget target{
        .repository = testing::HubServer::kRepository, .revision = "main", .name = "m"};
    return InstallRemote(target, remote, testing::TestOptions(root / "remote.gturbo"));
  });
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  close(to_parent[0]);
  close(to_parent[1]);
  std::filesystem::remove_all(root / "remote.gturbo");
  return seconds;
}

// The same bytes copied, and installed in three ways, in turns.
void Measure(uint64_t layers, int repeats) {
  // On a disk, not in memory.
  std::string name = (std::filesystem::temp_directory_path() / "mference-scale-XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const std::filesystem::path root = name;
  testing::Gemma4Headers(layers)->WriteTo(root / "snapshot");
  sync();
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const double copy = CopyAndSync(root);
    const double http =
        InstallFromHub("install over loopback HTTP", root, testing::HubStyle::kPlainMirror);
    std::printf("  %.2f times cp && sync\n", http / copy);
    const double tls =
        InstallFromHub("install over loopback TLS", root, testing::HubStyle::kLinked);
    std::printf("  %.2f times cp && sync\n", tls / copy);
    const double local = InstallInChild("install --from", [&] {
      return InstallLocal(root / "snapshot", "m", testing::TestOptions(root / "local.gturbo"));
    });
    std::printf("  %.2f times cp && sync\n", local / copy);
    std::fflush(stdout);
    std::filesystem::remove_all(root / "local.gturbo");
  }
  std::filesystem::remove_all(root);
}

TEST(InstallScale, DISABLED_TwoGigabytes) { Measure(4, 1); }
TEST(InstallScale, DISABLED_Gemma4) { Measure(30, 3); }

}  // namespace
}  // namespace mference
