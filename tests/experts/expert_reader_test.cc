#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ledger.h"
#include "base/slab.h"
#include "base/units.h"
#include "experts/blob_fixture.h"
#include "experts/expert_io.h"
#include "experts/pread_reader.h"
#include "experts/uring_reader.h"

namespace mference {
namespace {

using testing::HasSubstr;

// ---- One blob -------------------------------------------------------------------------------

// Plays back results of pread: positive counts are served, negative ones are errors.
ReadCompletion ReadWith(std::deque<ssize_t> results, uint64_t bytes = 1000) {
  std::vector<std::byte> target(bytes);
  uint64_t expected_offset = 5000;
  const auto imitation = [&](int fd, void* out, size_t wanted, off_t offset) -> ssize_t {
    EXPECT_EQ(fd, 77);
    EXPECT_EQ(offset, static_cast<off_t>(expected_offset));
    EXPECT_EQ(out, target.data() + (expected_offset - 5000));
    EXPECT_EQ(wanted, bytes - (expected_offset - 5000));
    const ssize_t result = results.front();
    results.pop_front();
    if (result < 0) {
      errno = static_cast<int>(-result);
      return -1;
    }
    expected_offset += static_cast<uint64_t>(result);
    return result;
  };
  const BlobRead read{.fd = 77, .offset = 5000, .target = target.data(), .bytes = bytes, .id = 3};
  const ReadCompletion completion = ReadBlob(read, imitation);
  EXPECT_TRUE(results.empty());
  EXPECT_EQ(completion.id, 3);
  return completion;
}

TEST(ReadBlob, GoesOnAfterShortReadsAndInterruptions) {
  const ReadCompletion completion = ReadWith({100, -EINTR, 1, -EINTR, -EINTR, 898, 1});
  EXPECT_EQ(completion.error, 0);
  EXPECT_EQ(completion.bytes_read, 1000u);
}

TEST(ReadBlob, ReportsErrorsAndTheEndOfTheFile) {
  EXPECT_EQ(ReadWith({100, -EIO}).error, EIO);
  EXPECT_EQ(ReadWith({100, -EIO}).bytes_read, 100u);
  EXPECT_EQ(ReadWith({-EAGAIN}).error, EAGAIN);
  EXPECT_EQ(ReadWith({100, 200, 0}).error, 0);
  EXPECT_EQ(ReadWith({100, 200, 0}).bytes_read, 300u);
}

// ---- Readers over a real file ---------------------------------------------------------------

enum class Kind { kPreadOne, kPreadEight, kUring, kUringShallow, kUringUnregistered };

class ReaderTest : public testing::TestWithParam<Kind> {
 protected:
  static constexpr uint64_t kBytes = 3 * 512 * kKiB + 16384;  // cut unevenly
  static constexpr int kExperts = 12;

  void SetUp() override {
    reader_ = Make();
    if (reader_ == nullptr) GTEST_SKIP() << refusal_;
  }

  std::unique_ptr<BlobReader> Make() {
    const auto uring = [this](int depth, int target, bool registered) {
      UringOptions options;
      options.max_blobs = kExperts;
      options.queue_depth = depth;
      options.target_requests = target;
      return MakeUringReader(options, registered ? slab_.bytes() : std::span<std::byte>(), kBytes,
                             refusal_);
    };
    switch (GetParam()) {
      case Kind::kPreadOne:
        return std::make_unique<PreadReader>(1, kExperts);
      case Kind::kPreadEight:
        return std::make_unique<PreadReader>(8, kExperts);
      case Kind::kUring:
        return uring(64, 16, true);
      case Kind::kUringShallow:
        return uring(1, 3, true);
      case Kind::kUringUnregistered:
        return uring(8, 1, false);
    }
    return nullptr;
  }

  std::byte* Target(int i) { return slab_.data() + static_cast<size_t>(i) * kBytes; }
  BlobRead Read(const FileDescriptor& file, int expert, int id) {
    return {.fd = file.get(),
            .offset = files_.Offset(expert),
            .target = Target(id),
            .bytes = kBytes,
            .id = id};
  }
  // Waits for `count` completions; returns them by id.
  std::vector<ReadCompletion> WaitFor(size_t count) {
    std::vector<ReadCompletion> by_id(kExperts, ReadCompletion{.id = -1});
    std::vector<ReadCompletion> some(5);
    for (size_t landed = 0; landed < count;) {
      const size_t now = reader_->Wait(some);
      EXPECT_GT(now, 0u);
      for (size_t i = 0; i < now; ++i) {
        EXPECT_EQ(by_id.at(static_cast<size_t>(some[i].id)).id, -1) << "reported twice";
        by_id[static_cast<size_t>(some[i].id)] = some[i];
      }
      landed += now;
    }
    EXPECT_EQ(reader_->Poll(some), 0u);
    return by_id;
  }

  BlobFiles files_{1, kExperts, kBytes};
  MemoryLedger ledger_{kGiB};
  Slab slab_{ledger_, "targets", kExperts* kBytes};
  std::string refusal_;
  std::unique_ptr<BlobReader> reader_;
};

TEST_P(ReaderTest, ReadsTheSameBytesBufferedAndDirect) {
  for (const bool direct : {false, true}) {
    const FileDescriptor file = OpenForReading(files_.Path(0));
    if (direct) {
      const auto refusal = EnableDirectIo(file, 16384);
      if (refusal.has_value()) GTEST_SKIP() << *refusal;
    } else {
      UseBufferedIo(file);
    }
    for (const int batch : {1, 2, kExperts}) {
      std::memset(slab_.data(), 0xEE, slab_.size());
      std::vector<BlobRead> reads;
      reads.reserve(kExperts);
      for (int i = 0; i < batch; ++i) reads.push_back(Read(file, kExperts - 1 - i, i));
      reader_->Submit(reads);
      const auto landed = WaitFor(static_cast<size_t>(batch));
      for (int i = 0; i < batch; ++i) {
        EXPECT_EQ(landed[static_cast<size_t>(i)].error, 0);
        EXPECT_EQ(landed[static_cast<size_t>(i)].bytes_read, kBytes);
        EXPECT_TRUE(files_.Matches(Target(i), 0, kExperts - 1 - i)) << batch << " " << i;
      }
    }
  }
}

TEST_P(ReaderTest, ReportsWhatWentWrong) {
  std::filesystem::resize_file(files_.Path(0), files_.Offset(5) + 700 * kKiB);
  const FileDescriptor file = OpenForReading(files_.Path(0));
  std::vector<BlobRead> reads = {Read(file, 4, 0), Read(file, 5, 1), Read(file, 6, 2),
                                 Read(file, 0, 3)};
  reads[3].fd = -1;
  reader_->Submit(reads);
  const auto landed = WaitFor(4);
  EXPECT_EQ(landed[0].bytes_read, kBytes);
  EXPECT_EQ(landed[1].error, 0);
  EXPECT_EQ(landed[1].bytes_read, 700 * kKiB);
  EXPECT_EQ(landed[2].error, 0);
  EXPECT_EQ(landed[2].bytes_read, 0u);
  EXPECT_EQ(landed[3].error, EBADF);
  EXPECT_TRUE(files_.Matches(Target(0), 0, 4));
}

TEST_P(ReaderTest, DestructionWaitsForWhatIsInFlight) {
  const FileDescriptor file = OpenForReading(files_.Path(0));
  std::vector<BlobRead> reads;
  reads.reserve(kExperts);
  for (int i = 0; i < kExperts; ++i) reads.push_back(Read(file, i, i));
  reader_->Submit(reads);
  reader_.reset();
  for (int i = 0; i < kExperts; ++i) EXPECT_TRUE(files_.Matches(Target(i), 0, i)) << i;
}

TEST_P(ReaderTest, RefusesMoreThanItsCapacity) {
  const FileDescriptor file = OpenForReading(files_.Path(0));
  const std::vector<BlobRead> reads(kExperts + 1, Read(file, 0, 0));
  EXPECT_THROW(reader_->Submit(reads), Error);
}

INSTANTIATE_TEST_SUITE_P(All, ReaderTest,
                         testing::Values(Kind::kPreadOne, Kind::kPreadEight, Kind::kUring,
                                         Kind::kUringShallow, Kind::kUringUnregistered));

// ---- Choosing -------------------------------------------------------------------------------

TEST(ExpertIo, AutoComparesAllExpertsWithFreeMemory) {
  EXPECT_FALSE(ChooseIo(ExpertIo::kAuto, 7 * kGiB, 10 * kGiB).direct);
  EXPECT_TRUE(ChooseIo(ExpertIo::kAuto, 7 * kGiB + kMiB, 10 * kGiB).direct);
  EXPECT_TRUE(ChooseIo(ExpertIo::kAuto, 1, 0).direct);
  EXPECT_THAT(ChooseIo(ExpertIo::kAuto, 12 * kGiB, 2 * kGiB).reason,
              HasSubstr("12.00 GiB of experts do not fit"));
  EXPECT_TRUE(ChooseIo(ExpertIo::kDirect, 1, kGiB).direct);
  EXPECT_FALSE(ChooseIo(ExpertIo::kBuffered, kGiB, 1).direct);
}

TEST(ExpertIo, Parse) {
  EXPECT_EQ(ParseExpertIo("auto"), ExpertIo::kAuto);
  EXPECT_EQ(ParseExpertIo("direct"), ExpertIo::kDirect);
  EXPECT_EQ(ParseExpertIo("buffered"), ExpertIo::kBuffered);
  EXPECT_THROW(ParseExpertIo("mmap"), Error);
  EXPECT_THROW(ParseExpertIo(""), Error);
}

const IoChoice kDirect = ChooseIo(ExpertIo::kDirect, 0, 0);
const IoChoice kBuffered = ChooseIo(ExpertIo::kBuffered, 0, 0);

// Serves all experts of `files` through a pool of 5 and checks every byte.
std::string ServeWith(const BlobFiles& files, const IoChoice& choice) {
  MemoryLedger ledger(kGiB);
  auto memory = std::make_unique<HostSlotMemory>(ledger, 5, files.blob_bytes());
  auto reader = MakeBlobReader(choice, {}, memory->ReadRegion(), memory->slot_bytes());
  ExpertStoreOptions options;
  options.direct_io = choice.direct;
  ExpertStore store(files.Describe(), std::move(memory), std::make_unique<LfuPolicy>(2, 16, 5),
                    std::move(reader), options);
  for (int layer = 0; layer < 2; ++layer) {
    const Served served = Serve(files, store, layer, Range(16), StreamOrder::kAscending);
    EXPECT_EQ(served.experts, Range(16));
  }
  return store.DescribeIo();
}

TEST(ExpertIo, BothModesServeTheSameBytes) {
  const BlobFiles files(2, 16, 65536);
  EXPECT_THAT(ServeWith(files, kBuffered), HasSubstr("buffered, pread"));
  ServeWith(files, kDirect);
}

TEST(ExpertIo, AMemoryFileSystemServesDirectRequestsOneWayOrTheOther) {
  const std::filesystem::path memory_fs = "/dev/shm";
  struct statfs info {};
  constexpr long kTmpfsMagic = 0x01021994;
  if (statfs(memory_fs.c_str(), &info) != 0 || info.f_type != kTmpfsMagic) {
    GTEST_SKIP() << "no tmpfs here";
  }
  const BlobFiles files(2, 16, 65536, memory_fs);
  // Kernels before 6.6 refuse O_DIRECT on tmpfs, later ones take it and use the page cache.
  ServeWith(files, kDirect);
}

TEST(ExpertIo, UnalignedBlobsAreReadBufferedWithAReason) {
  const BlobFiles files(2, 16, 1000);
  EXPECT_THAT(ServeWith(files, kDirect), HasSubstr("needs an alignment of"));
}

TEST(ExpertIo, EnableDirectIoChecksTheAlignment) {
  const BlobFiles files(1, 1, 16384);
  const FileDescriptor file = OpenForReading(files.Path(0));
  EXPECT_TRUE(EnableDirectIo(file, 8).has_value());
}

// Exits with 0 if a direct choice falls back to the pool, with a reason, where a filter of system
// calls answers io_uring_setup with EPERM, as container run-times do.
[[noreturn]] void FallBackUnderSeccomp() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{.len = sizeof(program) / sizeof(program[0]), .filter = program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    std::_Exit(2);
  }
  std::string refusal;
  const auto reader = MakeBlobReader(kDirect, {}, {}, 16384, &refusal);
  const bool fell_back = reader->Describe().find("pread") != std::string::npos;
  std::_Exit(fell_back && !refusal.empty() ? 0 : 1);
}

TEST(ExpertIoDeathTest, ARefusedRingFallsBackToThePool) {
  EXPECT_EXIT(FallBackUnderSeccomp(), testing::ExitedWithCode(0), "");
}

// Exits with 0 if an ordinary user with the usual limit on locked memory gets a ring that reads
// into a pool far above that limit.
[[noreturn]] void ReadUnderAMemlockLimit(const BlobFiles& files) {
  const FileDescriptor file = OpenForReading(files.Path(0));
  const rlimit limit{.rlim_cur = 8 * kMiB, .rlim_max = 8 * kMiB};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) std::_Exit(2);
  constexpr uid_t kNobody = 65534;
  if (geteuid() == 0 && setresuid(kNobody, kNobody, kNobody) != 0) std::_Exit(3);
  MemoryLedger ledger(kGiB);
  Slab slab(ledger, "pool", 64 * kMiB);
  std::string refusal;
  auto reader = MakeUringReader({}, slab.bytes(), files.blob_bytes(), refusal);
  if (reader == nullptr) std::_Exit(4);
  const BlobRead read{.fd = file.get(),
                      .offset = files.Offset(3),
                      .target = slab.data() + 40 * kMiB,
                      .bytes = files.blob_bytes()};
  reader->Submit({&read, 1});
  ReadCompletion completion{.id = -1};
  reader->Wait({&completion, 1});
  const bool unregistered = reader->Describe().find("not registered") != std::string::npos;
  std::_Exit(unregistered && completion.error == 0 && files.Matches(read.target, 0, 3) ? 0 : 1);
}

TEST(ExpertIoDeathTest, ALimitOnLockedMemoryCostsTheRegistrationOnly) {
  std::string refusal;
  if (MakeUringReader({}, {}, 16384, refusal) == nullptr) GTEST_SKIP() << refusal;
  const BlobFiles files(1, 4, 2 * kMiB);
  EXPECT_EXIT(ReadUnderAMemlockLimit(files), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace mference
