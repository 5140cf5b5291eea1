// Prefixes on disk: what comes back, and what damage, other settings and full disks do.
#include "engine/prompt_cache_directory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "engine/fake_line.h"
#include "engine/prefix_cache.h"

namespace mference {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_support::FakeModel;
using Tokens = std::vector<int32_t>;

constexpr int64_t kContext = 256;

Tokens Text(int32_t seed, int32_t count) {
  Tokens tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), seed * 1000);
  return tokens;
}
Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class PromptCacheDirectoryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "mference-prefix-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path path() const { return root_ / "cache"; }
  std::unique_ptr<PromptCacheDirectory> Open(std::string_view identity = "model",
                                             uint64_t limit_bytes = kMiB) {
    return std::make_unique<PromptCacheDirectory>(
        path(), limit_bytes, identity, model_.layout(), kContext,
        [this](const std::string& message) { warnings_.push_back(message); });
  }
  // A line of `tokens`, computed.
  SequenceState Line(const Tokens& tokens) {
    SequenceState state(model_.layout(), kContext, ledger_);
    model_.Forward(state, tokens);
    return state;
  }
  void SaveLine(PromptCacheDirectory& directory, const Tokens& tokens) {
    EXPECT_TRUE(directory.Save(Line(tokens), tokens, {}));
  }
  // How many tokens of `prompt` a fresh state gets from `directory`; checks its bytes.
  int64_t Get(PromptCacheDirectory& directory, const Tokens& prompt) {
    const PromptCacheDirectory::Found found = directory.Find(prompt);
    if (found.tokens == 0) return 0;
    SequenceState state(model_.layout(), kContext, ledger_);
    Tokens tokens = {1, 2, 3};
    if (!directory.Load(found, state, tokens)) {
      EXPECT_TRUE(state.usable());
      EXPECT_EQ(state.position(), 0);
      EXPECT_TRUE(tokens.empty());
      return 0;
    }
    EXPECT_TRUE(model_.Holds(state, tokens));
    EXPECT_EQ(found.snapshot_position, static_cast<int64_t>(tokens.size()));
    state.RewindTo(found.tokens);
    return found.tokens;
  }
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path())) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
  }
  static std::string Read(const fs::path& file) { return ReadTextFile(file, kGiB); }
  static void Write(const fs::path& file, const std::string& content) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << content;
  }

  fs::path root_;
  FakeModel model_{{.ring = true, .fixed = true}};
  MemoryLedger ledger_{16 * kMiB};
  std::vector<std::string> warnings_;
};

TEST_F(PromptCacheDirectoryTest, ALineSurvivesARestart) {
  const Tokens tokens = Text(1, 100);
  SaveLine(*Open(), tokens);
  const auto again = Open();
  EXPECT_EQ(again->counters().files, 1);
  EXPECT_EQ(Get(*again, tokens + Text(2, 5)), 100);
  EXPECT_EQ(Get(*again, Text(3, 50)), 0);
  EXPECT_EQ(again->counters().loads, 1);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(PromptCacheDirectoryTest, EarlierSnapshotsAreKeptToo) {
  const Tokens tokens = Text(1, 100);
  SequenceState state = Line(Text(1, 60));
  const StateSnapshot snapshot = state.Snapshot(ledger_);
  model_.Forward(state, tokens);
  const StateSnapshot* const snapshots[] = {&snapshot};
  EXPECT_TRUE(Open()->Save(state, tokens, snapshots));
  const auto again = Open();
  EXPECT_EQ(Get(*again, Text(1, 80) + Text(2, 5)), 60);
  EXPECT_EQ(Get(*again, tokens), 60) << "the last token is always computed";
  EXPECT_EQ(Get(*again, tokens + Text(2, 1)), 100);
}

TEST_F(PromptCacheDirectoryTest, NobodyElseCanReadIt) {
  SaveLine(*Open(), Text(1, 20));
  struct stat info {};
  ASSERT_EQ(stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(Files().size(), 1u);
  ASSERT_EQ(stat(Files()[0].c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(PromptCacheDirectoryTest, ADirectoryThatOthersMayWriteToIsRefused) {
  fs::create_directory(path());
  chmod(path().c_str(), 0777);
  try {
    Open();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("chmod"));
  }
  EXPECT_THROW(PromptCacheDirectory(root_ / "no" / "parent", kMiB, "", model_.layout(), kContext,
                                    [](const std::string&) {}),
               Error);
  Write(root_ / "file", "");
  EXPECT_THROW(PromptCacheDirectory(root_ / "file", kMiB, "", model_.layout(), kContext,
                                    [](const std::string&) {}),
               Error);
}

TEST_F(PromptCacheDirectoryTest, OtherModelsSettingsAndLayoutsAreNotUsed) {
  const Tokens tokens = Text(1, 50);
  SaveLine(*Open("model A"), tokens);
  {
    const auto other = Open("model B");
    EXPECT_EQ(Get(*other, tokens + Text(2, 1)), 0);
    EXPECT_EQ(other->counters().foreign_files, 1);
    SaveLine(*other, tokens);
  }
  const FakeModel another({.ring = true});
  PromptCacheDirectory layout(path(), kMiB, "model A", another.layout(), kContext,
                              [](const std::string&) {});
  EXPECT_EQ(layout.Find(tokens + Text(2, 1)).tokens, 0);
  PromptCacheDirectory context(path(), kMiB, "model A", model_.layout(), kContext * 2,
                               [](const std::string&) {});
  EXPECT_EQ(context.Find(tokens + Text(2, 1)).tokens, 0);
  EXPECT_EQ(Get(*Open("model A"), tokens + Text(2, 1)), 50);
  EXPECT_TRUE(warnings_.empty());
}

// kill -9, a full disk or a bad one leave a file cut anywhere, or with any byte changed.
TEST_F(PromptCacheDirectoryTest, EveryTruncationIsFoundAndDiscarded) {
  const Tokens tokens = Text(1, 12);
  SaveLine(*Open(), tokens);
  const fs::path file = Files()[0];
  const std::string whole = Read(file);
  for (size_t length = 0; length < whole.size(); length += 1 + length / 40) {
    Write(file, whole.substr(0, length));
    warnings_.clear();
    const auto directory = Open();
    EXPECT_EQ(Get(*directory, tokens + Text(2, 1)), 0) << length << " bytes";
    EXPECT_EQ(warnings_.size(), 1u) << length << " bytes";
    EXPECT_FALSE(fs::exists(file)) << length << " bytes";
  }
  Write(file, whole);
  EXPECT_EQ(Get(*Open(), tokens + Text(2, 1)), 12);
}

TEST_F(PromptCacheDirectoryTest, EveryChangedByteIsFoundAndDiscarded) {
  const Tokens tokens = Text(1, 12);
  SaveLine(*Open(), tokens);
  const fs::path file = Files()[0];
  const std::string whole = Read(file);
  for (size_t at = 0; at < whole.size(); at += 1 + at / 60) {
    if (at == 15) continue;  // the version: such a file is left alone
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x20);
    Write(file, changed);
    warnings_.clear();
    const auto directory = Open();
    EXPECT_EQ(Get(*directory, tokens + Text(2, 1)), 0) << "byte " << at;
    EXPECT_EQ(warnings_.size(), 1u) << "byte " << at;
    EXPECT_THAT(warnings_[0], HasSubstr("discarded"));
    EXPECT_EQ(directory->counters().discarded, 1);
    EXPECT_FALSE(fs::exists(file)) << "byte " << at;
  }
}

TEST_F(PromptCacheDirectoryTest, AFileOfAnotherVersionIsLeftAlone) {
  SaveLine(*Open(), Text(1, 12));
  const fs::path file = Files()[0];
  std::string changed = Read(file);
  changed[15] = 9;
  Write(file, changed);
  const auto directory = Open();
  EXPECT_EQ(directory->counters().foreign_files, 1);
  EXPECT_TRUE(fs::exists(file));
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(PromptCacheDirectoryTest, DamageAfterTheStartIsFoundToo) {
  const Tokens tokens = Text(1, 50);
  SaveLine(*Open(), tokens);
  const auto directory = Open();
  const fs::path file = Files()[0];
  std::string changed = Read(file);
  changed[changed.size() - 5000] = static_cast<char>(changed[changed.size() - 5000] ^ 1);
  Write(file, changed);
  EXPECT_EQ(Get(*directory, tokens + Text(2, 1)), 0);
  EXPECT_EQ(warnings_.size(), 1u);
  EXPECT_EQ(directory->counters().files, 0);

  SaveLine(*directory, tokens);
  fs::remove(file);  // by another process
  EXPECT_EQ(Get(*directory, tokens + Text(2, 1)), 0);
  EXPECT_EQ(directory->counters().files, 0);
}

TEST_F(PromptCacheDirectoryTest, LeftoversOfInterruptedWritesGo) {
  Open();
  const fs::path leftover = path() / ("0123456789abcdef0123456789abcdef.prefix.tmp");
  const fs::path other = path() / "notes.txt";
  Write(leftover, "half");
  Write(other, "mine");
  const int fd = open(leftover.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  Open();
  EXPECT_TRUE(fs::exists(leftover)) << "another process is writing it";
  close(fd);
  Open();
  EXPECT_FALSE(fs::exists(leftover));
  EXPECT_TRUE(fs::exists(other));
}

TEST_F(PromptCacheDirectoryTest, ALineThatGrewReplacesItsFile) {
  const auto directory = Open();
  SaveLine(*directory, Text(1, 50));
  SaveLine(*directory, Text(1, 50) + Text(2, 20));
  EXPECT_EQ(Files().size(), 1u);
  SaveLine(*directory, Text(3, 20));
  EXPECT_EQ(Files().size(), 2u);
  EXPECT_EQ(directory->counters().files, 2);
  uint64_t bytes = 0;
  for (const fs::path& file : Files()) bytes += fs::file_size(file);
  EXPECT_EQ(directory->counters().bytes, bytes);
}

TEST_F(PromptCacheDirectoryTest, TheLimitHoldsAndTheLeastRecentlyUsedGo) {
  SaveLine(*Open(), Text(1, 50));
  const uint64_t one = fs::file_size(Files()[0]);
  const uint64_t limit = 3 * one + 66 * kKiB;  // a header is counted at its largest beforehand
  const auto directory = Open("model", limit);
  const auto age = [&](int hours) {
    for (const fs::path& file : Files()) {
      fs::last_write_time(file, fs::last_write_time(file) - std::chrono::hours(hours));
    }
  };
  for (const int who : {2, 3}) {
    age(1);
    SaveLine(*directory, Text(who, 50));
  }
  age(1);
  const auto later = Open("model", limit);
  EXPECT_EQ(Get(*later, Text(1, 50) + Text(9, 1)), 50);  // used now
  SaveLine(*later, Text(4, 50));
  EXPECT_EQ(later->counters().evictions, 1);
  EXPECT_EQ(Get(*later, Text(2, 50) + Text(9, 1)), 0);
  EXPECT_EQ(Get(*later, Text(1, 50) + Text(9, 1)), 50);
  EXPECT_EQ(Get(*later, Text(4, 50) + Text(9, 1)), 50);
  // A lower limit at the next start.
  EXPECT_LE(Open("model", one + 10)->counters().bytes, one + 10);
  EXPECT_EQ(Files().size(), 1u);
  // Nothing fits: said, not thrown.
  const auto tiny = Open("model", 1000);
  EXPECT_FALSE(tiny->Save(Line(Text(5, 50)), Text(5, 50), {}));
  EXPECT_THAT(warnings_.back(), HasSubstr("limit"));
  EXPECT_TRUE(Files().empty());
}

TEST_F(PromptCacheDirectoryTest, ClearRemovesTheCacheOnly) {
  SaveLine(*Open("model A"), Text(1, 50));
  SaveLine(*Open("model B"), Text(1, 50));
  Write(path() / "notes.txt", "mine");
  EXPECT_EQ(PromptCacheDirectory::Clear(path()), 2);
  EXPECT_EQ(Files().size(), 1u);
  EXPECT_EQ(PromptCacheDirectory::Clear(root_ / "missing"), 0);
}

TEST_F(PromptCacheDirectoryTest, AWriteThatFailsIsAWarning) {
  const auto directory = Open();
  fs::remove_all(path());
  EXPECT_FALSE(directory->Save(Line(Text(1, 50)), Text(1, 50), {}));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("could not keep 50 tokens"));
}

// Through the cache: the file is used where it spares more than memory does, and a damaged one
// costs a prefill and nothing else.
TEST_F(PromptCacheDirectoryTest, ThePrefixCacheReadsAndWritesIt) {
  const Tokens tokens = Text(1, 100);
  {
    const auto directory = Open();
    PrefixCache cache(model_.layout(), kContext, ledger_, {.min_gain_tokens = 4});
    cache.SetDirectory(directory.get());
    const SequenceState state = Line(tokens);
    EXPECT_TRUE(cache.Save(state, tokens));
    EXPECT_FALSE(cache.Save(state, tokens)) << "nothing new";
    EXPECT_FALSE(cache.Save(state, Text(1, 5))) << "not what the state holds";
  }
  const auto directory = Open();
  PrefixCache cache(model_.layout(), kContext, ledger_, {.min_gain_tokens = 4});
  cache.SetDirectory(directory.get());
  SequenceState state(model_.layout(), kContext, ledger_);
  Tokens held;
  PrefixMatch match = cache.Resume(tokens + Text(2, 3), state, held);
  EXPECT_EQ(match.source, PrefixMatch::Source::kDisk);
  EXPECT_EQ(match.tokens, 100);
  EXPECT_EQ(held, tokens);
  EXPECT_TRUE(model_.Holds(state, held));

  std::string changed = Read(Files()[0]);
  changed.back() = static_cast<char>(changed.back() ^ 1);
  Write(Files()[0], changed);
  state.Reset();
  held.clear();
  match = cache.Resume(tokens + Text(2, 3), state, held);
  EXPECT_EQ(match.tokens, 0);
  EXPECT_TRUE(held.empty());
  EXPECT_TRUE(state.usable());
  EXPECT_EQ(warnings_.size(), 1u);
}

}  // namespace
}  // namespace mference
