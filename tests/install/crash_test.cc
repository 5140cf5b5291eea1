// Ends an install at every change it makes to the disk, and continues it.
//
// The points are enumerated, not sampled: an undisturbed run counts its changes, then one run per
// change is ended right there. Three ways of ending: SIGKILL in a child process on real files; a
// power cut on a file system that loses everything that was not flushed (the page cache would hide
// a missing flush from SIGKILL); and errors (no space, I/O error) that the installer has to
// survive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <set>

#include "install/install_paths.h"
#include "install/installer.h"
#include "install/local_install.h"
#include "install/local_source.h"
#include "install/memory_files.h"
#include "install/promotion.h"
#include "install/test_support.h"

namespace mference {
namespace {

using testing::FaultyFileSystem;
using testing::GoldenSnapshot;
using ::testing::HasSubstr;
using testing::Killed;
using testing::Loss;
using testing::MemoryFileSystem;
using testing::TempDirectory;

const std::filesystem::path kOutput = "/models/tiny.gturbo";

// A local source that stands for a remote one: ranges pass through temporary files of the install's
// file system, and every fetch is noted.
class NotedSource final : public SnapshotSource {
 public:
  explicit NotedSource(const std::filesystem::path& snapshot) : below_(snapshot) {}

  std::set<std::string> fetched;

  SourceIdentity identity() const override { return below_.identity(); }
  bool is_remote() const override { return true; }
  void UseWorkDirectory(FileSystem& files, const std::filesystem::path& directory) override {
    files_ = &files;
    directory_ = directory;
  }
  std::optional<std::string> ReadFile(const std::string& name, uint64_t max_bytes) override {
    return below_.ReadFile(name, max_bytes);
  }
  std::unique_ptr<FetchedRange> FetchFile(const std::string& name, uint64_t max_bytes) override {
    return below_.FetchFile(name, max_bytes);
  }
  bool HasFile(const std::string& name) override { return below_.HasFile(name); }
  ShardInfo Examine(const std::string& shard) override { return below_.Examine(shard); }
  std::string ReadBytes(const std::string& shard, uint64_t offset, uint64_t bytes) override {
    return below_.ReadBytes(shard, offset, bytes);
  }
  void StreamBytes(const std::string& shard, uint64_t offset, uint64_t bytes,
                   const std::function<void(std::span<const std::byte>)>& sink) override {
    below_.StreamBytes(shard, offset, bytes, sink);
  }
  std::unique_ptr<FetchedRange> Fetch(const RangeRequest& request) override {
    fetched.insert(request.label);
    return std::make_unique<Temporary>(
        *files_, directory_ / ("." + request.label + ".tmp"),
        below_.ReadBytes(request.shard, request.offset, request.bytes));
  }

 private:
  class Temporary final : public FetchedRange {
   public:
    Temporary(FileSystem& files, std::filesystem::path path, const std::string& content)
        : files_(files), path_(std::move(path)) {
      if (files_.Examine(path_) == EntryType::kFile) files_.RemoveFile(path_);
      file_ = files_.CreateFile(path_, 0600);
      file_->WriteAt(0, std::as_bytes(std::span(content)));
    }
    ~Temporary() override {
      try {
        files_.RemoveFile(path_);
      } catch (...) {
      }
    }
    uint64_t bytes() const override { return file_->Size(); }
    void ReadAt(uint64_t offset, std::span<std::byte> out) override { file_->ReadAt(offset, out); }

   private:
    FileSystem& files_;
    const std::filesystem::path path_;
    std::unique_ptr<File> file_;
  };

  LocalSource below_;
  FileSystem* files_ = nullptr;
  std::filesystem::path directory_;
};

// Serial, so that the n-th change is the same one every time.
InstallOptions SerialOptions(const std::filesystem::path& output, uint64_t chunk_bytes) {
  InstallOptions options = testing::TestOptions(output);
  options.chunk_bytes = chunk_bytes;
  options.background = false;
  options.ranges_in_flight = 1;
  return options;
}

// The micro checkpoint comes to over a hundred and fifty ranges, or to twenty where the same places
// in the code are met in another way.
constexpr uint64_t kCoarseChunk = 2048;
#ifdef MFERENCE_SANITIZED
constexpr uint64_t kFineChunk = kCoarseChunk;  // every run is slow
constexpr int kLeastPoints = 150;
#else
constexpr uint64_t kFineChunk = 200;
constexpr int kLeastPoints = 1500;
#endif

// Small, so that thousands of installs take seconds; ternary, so that transforms are among them.
const std::filesystem::path& MicroSnapshot() {
  static const TempDirectory directory;
  static const std::filesystem::path path = [] {
    testing::WriteMicroSnapshot(directory / "micro");
    return directory / "micro";
  }();
  return path;
}

void InstallOn(FileSystem& files, NotedSource& source, uint64_t chunk_bytes = kCoarseChunk) {
  InstallOptions options = SerialOptions(kOutput, chunk_bytes);
  options.files = &files;
  Install(source, options);
}

// What an undisturbed install leaves, lock aside.
std::map<std::string, std::string> UndisturbedTree(uint64_t chunk_bytes = kCoarseChunk) {
  MemoryFileSystem files;
  NotedSource source(MicroSnapshot());
  InstallOn(files, source, chunk_bytes);
  return files.Tree();
}

std::set<std::string> Recorded(FileSystem& files) {
  std::set<std::string> ids;
  const InstallPaths paths = InstallPaths::For(files, kOutput);
  if (files.Examine(paths.checkpoint) != EntryType::kFile) return ids;
  for (const auto& [id, range] : ReadCheckpoint(files, paths.checkpoint).completed) ids.insert(id);
  return ids;
}

// A second install after whatever the first one came to: it must end like an undisturbed one and
// fetch nothing that was recorded.
void ContinueAndCompare(MemoryFileSystem& files, const std::map<std::string, std::string>& expected,
                        const std::string& when, uint64_t chunk_bytes = kCoarseChunk) {
  const std::set<std::string> recorded = Recorded(files);
  NotedSource source(MicroSnapshot());
  if (files.Examine(kOutput) != EntryType::kNone) {
    // The first run was complete before it was ended.
    ASSERT_TRUE(IsCompleteInstall(files, kOutput, kOutput)) << when;
    EXPECT_THROW(InstallOn(files, source, chunk_bytes), Error) << when;
  } else {
    ASSERT_NO_THROW(InstallOn(files, source, chunk_bytes)) << when;
  }
  for (const std::string& id : source.fetched) {
    ASSERT_FALSE(recorded.contains(id)) << when << ": " << id << " was recorded and fetched again";
  }
  ASSERT_TRUE(files.Tree() == expected) << when << ": the install differs";
}

class PowerCutAtEveryChange : public ::testing::TestWithParam<Loss> {};

TEST_P(PowerCutAtEveryChange, LosesNothingThatWasRecorded) {
  const uint64_t chunk_bytes = GetParam() == Loss::kEverything ? kFineChunk : kCoarseChunk;
  const auto expected = UndisturbedTree(chunk_bytes);
  int changes = 0;
  {
    MemoryFileSystem files;
    FaultyFileSystem counted(files, [](int, const std::string&) {});
    NotedSource source(MicroSnapshot());
    InstallOn(counted, source, chunk_bytes);
    changes = counted.changes();
  }
  ASSERT_GT(changes, GetParam() == Loss::kEverything ? kLeastPoints : 150);
  for (int end = 0; end < changes; ++end) {
    MemoryFileSystem files;
    std::string when;
    FaultyFileSystem dying(files, [&](int number, const std::string& what) {
      if (number == end) when = fmt::format("change {} ({})", number, what);
      if (number >= end) throw Killed();  // nothing happens after the end either
    });
    NotedSource source(MicroSnapshot());
    try {
      InstallOn(dying, source, chunk_bytes);
    } catch (const Killed&) {
    }
    files.PowerCut(GetParam());
    ContinueAndCompare(files, expected, when, chunk_bytes);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Losses, PowerCutAtEveryChange,
                         ::testing::Values(Loss::kEverything, Loss::kContents,
                                           Loss::kDirectoryEntries),
                         [](const auto& instance) {
                           switch (instance.param) {
                             case Loss::kEverything:
                               return "Everything";
                             case Loss::kContents:
                               return "Contents";
                             case Loss::kDirectoryEntries:
                               return "DirectoryEntries";
                           }
                           return "";
                         });

// Replacing an installed model: at any time there is an old or a new one to load, or a partial to
// finish, and never a mixture.
class ReplacementAtEveryChange : public ::testing::TestWithParam<bool> {};

TEST_P(ReplacementAtEveryChange, LeavesTheOldOrTheNew) {
  const bool can_exchange = GetParam();
  const auto install_old = [&](MemoryFileSystem& files) {
    files.set_can_exchange(can_exchange);
    NotedSource source(GoldenSnapshot("inkling"));
    InstallOptions options = SerialOptions(kOutput, kMaxChunkBytes);
    options.files = &files;
    Install(source, options);
  };
  const auto replace = [&](FileSystem& files) {
    NotedSource source(MicroSnapshot());
    InstallOptions options = SerialOptions(kOutput, kMaxChunkBytes);
    options.files = &files;
    options.overwrite = true;
    Install(source, options);
  };
  int changes = 0;
  std::map<std::string, std::string> expected;
  {
    MemoryFileSystem files;
    install_old(files);
    FaultyFileSystem counted(files, [](int, const std::string&) {});
    replace(counted);
    changes = counted.changes();
    expected = files.Tree();
  }
  for (const Loss loss : {Loss::kEverything, Loss::kContents, Loss::kDirectoryEntries}) {
    for (int end = 0; end < changes; ++end) {
      MemoryFileSystem files;
      install_old(files);
      std::string when;
      FaultyFileSystem dying(files, [&](int number, const std::string& what) {
        if (number == end) when = fmt::format("change {} ({})", number, what);
        if (number >= end) throw Killed();
      });
      try {
        replace(dying);
      } catch (const Killed&) {
      }
      files.PowerCut(loss);
      const InstallPaths paths = InstallPaths::For(files, kOutput);
      // Whoever opens the model now finds a whole one, or (two renames apart, where directories
      // cannot be exchanged) none.
      if (files.Examine(kOutput) != EntryType::kNone) {
        ASSERT_TRUE(IsCompleteInstall(files, kOutput, kOutput)) << when;
      } else {
        ASSERT_FALSE(can_exchange) << when;
      }
      ASSERT_NO_THROW(replace(files)) << when;
      ASSERT_TRUE(files.Tree() == expected) << when;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Exchange, ReplacementAtEveryChange, ::testing::Bool());

class ErrorAtEveryChange : public ::testing::TestWithParam<ErrorCode> {};

TEST_P(ErrorAtEveryChange, IsReportedAndSurvived) {
  const auto expected = UndisturbedTree();
  for (int end = 0;; ++end) {
    MemoryFileSystem files;
    std::string when;
    FaultyFileSystem failing(files, [&](int number, const std::string& what) {
      if (number != end) return;
      when = fmt::format("change {} ({})", number, what);
      Fail(GetParam(), "injected: {}", what);
    });
    NotedSource source(MicroSnapshot());
    bool failed = false;
    try {
      InstallOn(failing, source);
    } catch (const Error& error) {
      failed = true;
      ASSERT_EQ(error.code(), GetParam()) << when << ": " << error.what();
      ASSERT_THAT(error.what(), HasSubstr("injected"));
    }
    if (failing.changes() <= end) break;
    // A failed removal of a transfer file is swept up later; every other failure is the user's to
    // know.
    ASSERT_TRUE(failed || when.find("remove") != std::string::npos) << when;
    if (failed || files.Tree() != expected) {
      ContinueAndCompare(files, expected, when);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Errors, ErrorAtEveryChange,
                         ::testing::Values(ErrorCode::kDiskFull, ErrorCode::kIo),
                         [](const auto& instance) {
                           return instance.param == ErrorCode::kIo ? "Io" : "DiskFull";
                         });

// --- SIGKILL on real files ---------------------------------------------------------------------

// Installs in a child process that kills itself at change `end`. True: it was killed.
bool InstallAndKill(const std::filesystem::path& output, int end) {
  const pid_t child = fork();
  if (child == 0) {
    FaultyFileSystem dying(PosixFiles(), [end](int number, const std::string&) {
      if (number == end) raise(SIGKILL);
    });
    NotedSource source(MicroSnapshot());
    InstallOptions options = SerialOptions(output, kFineChunk);
    options.files = &dying;
    try {
      Install(source, options);
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
  return WIFSIGNALED(status);
}

TEST(SigkillAtEveryChange, ContinuesToTheSameBytes) {
  const TempDirectory temp;
  const std::filesystem::path output = temp / "m.gturbo";
  NotedSource undisturbed(MicroSnapshot());
  Install(undisturbed, SerialOptions(output, kFineChunk));
  const auto expected = testing::ReadTree(output);
  int points = 0;
  for (int end = 0;; ++end) {
    std::filesystem::remove_all(output);
    if (!InstallAndKill(output, end)) break;
    ++points;
    std::set<std::string> recorded;
    const std::filesystem::path checkpoint = temp / "m.gturbo.resume.json";
    if (std::filesystem::exists(checkpoint)) {
      for (const auto& [id, range] : ReadCheckpoint(PosixFiles(), checkpoint).completed) {
        recorded.insert(id);
      }
    }
    if (!std::filesystem::exists(output)) {
      NotedSource source(MicroSnapshot());
      ASSERT_NO_THROW(Install(source, SerialOptions(output, kFineChunk))) << "change " << end;
      for (const std::string& id : source.fetched) {
        ASSERT_FALSE(recorded.contains(id)) << "change " << end << ": " << id;
      }
    }
    ASSERT_TRUE(testing::ReadTree(output) == expected) << "change " << end;
  }
  EXPECT_GT(points, kLeastPoints);
}

// --- What else can be in the way ---------------------------------------------------------------

TEST(SavedDownload, DamagedRangesAreFetchedAgainAndNothingElse) {
  MemoryFileSystem files;
  const auto expected = UndisturbedTree();
  FaultyFileSystem dying(files, [](int number, const std::string&) {
    if (number >= 150) throw Killed();
  });
  NotedSource first(MicroSnapshot());
  EXPECT_THROW(InstallOn(dying, first), Killed);
  const std::set<std::string> recorded = Recorded(files);
  ASSERT_GT(recorded.size(), 5u);
  files.FlipByte(InstallPaths::For(files, kOutput).partial / "model_weights.bin", 20'000);

  NotedSource second(MicroSnapshot());
  InstallOn(files, second);
  size_t again = 0;
  for (const std::string& id : second.fetched) again += recorded.contains(id);
  EXPECT_EQ(again, 1u);
  EXPECT_TRUE(files.Tree() == expected);
}

TEST(SavedDownload, OfAnotherSourceIsNotTouched) {
  MemoryFileSystem files;
  FaultyFileSystem dying(files, [](int number, const std::string&) {
    if (number >= 100) throw Killed();
  });
  NotedSource first(MicroSnapshot());
  EXPECT_THROW(InstallOn(dying, first), Killed);
  const TempDirectory temp;
  std::filesystem::copy(MicroSnapshot(), temp / "other-model",
                        std::filesystem::copy_options::recursive);
  NotedSource other(temp / "other-model");
  try {
    InstallOn(files, other);
    FAIL() << "continued another source's download";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInstallState);
    EXPECT_THAT(error.what(), HasSubstr("different source"));
  }
  DiscardPartialInstall(kOutput, &files);
  EXPECT_FALSE(FindSavedDownload(kOutput, &files));
  EXPECT_THROW(DiscardPartialInstall(kOutput, &files), Error);
  InstallOn(files, other);
}

TEST(SavedDownload, DamagedCheckpointsCanOnlyBeDiscarded) {
  const std::string good = [] {
    Checkpoint checkpoint;
    checkpoint.source = {"a/b", "main", std::string(40, '1')};
    checkpoint.source_index_sha256 = std::string(64, '2');
    checkpoint.plan_fingerprint = std::string(64, '3');
    checkpoint.chunk_bytes = 64;
    checkpoint.total_source_bytes = 100;
    checkpoint.completed["range-00000000"] = {std::string(64, '4'), 60, 60};
    return CheckpointToJson(checkpoint);
  }();
  EXPECT_EQ(CheckpointToJson(ParseCheckpoint(good, "c")), good);
  const std::pair<const char*, const char*> damages[] = {
      {"\"schema\":1", "\"schema\":2"},
      {"\"sourceBytes\":60", "\"sourceBytes\":0"},
      {"\"sourceBytes\":60", "\"sourceBytes\":101"},
      {"\"totalSourceBytes\":100", "\"totalSourceBytes\":0"},
      {"\"id\":\"range-00000000\"", "\"id\":\"\""},
      {"\"repoID\":\"a/b\"", "\"repoID\":\"\""},
      {"1111111111", "111111111"},
      {"3333333333", "333333333x"},
      {"\"completedRanges\":[", "\"completedRanges\":"},
      {"}", ""},
  };
  for (const auto& [from, to] : damages) {
    std::string text = good;
    text.replace(text.find(from), std::string_view(from).size(), to);
    EXPECT_THROW(ParseCheckpoint(text, "c"), Error) << to;
  }
  EXPECT_THROW(ParseCheckpoint(std::string(kMaxCheckpointBytes + 1, ' '), "c"), Error);
}

TEST(DiskSpace, IsCheckedBeforeAnythingIsWritten) {
  MemoryFileSystem files;
  files.set_available_bytes(100'000);
  NotedSource source(MicroSnapshot());
  try {
    InstallOn(files, source);
    FAIL() << "installed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDiskFull);
    EXPECT_THAT(error.what(), HasSubstr("97.7 KiB"));
  }
  EXPECT_TRUE(files.Tree().empty());
}

TEST(InstallLock, NamesTheHolderAndIsFreeWhenItDies) {
  const TempDirectory temp;
  const std::filesystem::path output = temp / "m.gturbo";
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = LockInstall(PosixFiles(), InstallPaths::For(PosixFiles(), output));
    const bool told = write(ready[1], "x", 1) == 1;
    pause();
    _exit(told ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  try {
    InstallLocal(MicroSnapshot(), "tiny", testing::TestOptions(output));
    FAIL() << "two installers at once";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInstallState);
    EXPECT_THAT(error.what(), HasSubstr(fmt::format("process {} on ", child)));
    EXPECT_THAT(error.what(), HasSubstr(" since 20"));
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  InstallLocal(MicroSnapshot(), "tiny", testing::TestOptions(output));
}

TEST(InstallLock, AliasesOfATargetContend) {
  const TempDirectory temp;
  std::filesystem::create_directory(temp / "real");
  std::filesystem::create_directory_symlink(temp / "real", temp / "alias");
  FileSystem& files = PosixFiles();
  const auto lock = LockInstall(files, InstallPaths::For(files, temp / "real/m.gturbo"));
  EXPECT_THROW(LockInstall(files, InstallPaths::For(files, temp / "alias/m.gturbo")), Error);
}

TEST(InstallPaths, UnsafeEntriesAreRefused) {
  const TempDirectory temp;
  FileSystem& files = PosixFiles();
  const auto refused = [&](const char* name) {
    try {
      InstallPaths::For(files, temp / "m.gturbo");
      return false;
    } catch (const Error& error) {
      std::filesystem::remove(temp / name);
      return error.code() == ErrorCode::kInstallState;
    }
  };
  for (const char* name : {"m.gturbo", "m.gturbo.partial", "m.gturbo.resume.json",
                           "m.gturbo.install.lock", "m.gturbo.ranges.json", "m.gturbo.replaced"}) {
    std::filesystem::create_symlink(temp.path(), temp / name);
    EXPECT_TRUE(refused(name)) << name;
  }
  EXPECT_THROW(InstallPaths::For(files, "/"), Error);
}

}  // namespace
}  // namespace mference
