#include "base/slab.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/page_lock.h"

namespace mference {
namespace {

constexpr size_t kBytes = 40 * (size_t{1} << 20) + 12345;

class SlabTest : public testing::TestWithParam<Slab::Pages> {
 protected:
  MemoryLedger ledger_{uint64_t{1} << 30};
};

TEST_P(SlabTest, IsReservedAlignedAndZero) {
  const Slab slab(ledger_, "part", kBytes, GetParam());
  EXPECT_EQ(ledger_.reserved_bytes(), kBytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(slab.data()) % Slab::kAlignment, 0u);
  slab.WaitUntilPopulated();
  EXPECT_TRUE(std::all_of(slab.bytes().begin(), slab.bytes().end(),
                          [](std::byte value) { return value == std::byte{0}; }));
}

TEST_P(SlabTest, KeepsWhatIsWrittenWhilePagesComeIntoBeing) {
  Slab slab(ledger_, "part", kBytes, GetParam());
  std::fill(slab.bytes().begin(), slab.bytes().end(), std::byte{7});
  Slab moved = std::move(slab);
  moved.WaitUntilPopulated();
  EXPECT_TRUE(std::all_of(moved.bytes().begin(), moved.bytes().end(),
                          [](std::byte value) { return value == std::byte{7}; }));
}

TEST_P(SlabTest, MayGoAtOnce) {
  { const Slab slab(ledger_, "part", kBytes, GetParam()); }
  EXPECT_EQ(ledger_.reserved_bytes(), 0u);
}

TEST_P(SlabTest, RefusesWhatTheLedgerRefuses) {
  EXPECT_THROW(Slab(ledger_, "part", size_t{2} << 30, GetParam()), Error);
}

INSTANTIATE_TEST_SUITE_P(Pages, SlabTest,
                         testing::Values(Slab::Pages::kWhenTouched, Slab::Pages::kNow,
                                         Slab::Pages::kInBackground));

TEST(PageLock, KeepsPagesOfAnyAlignment) {
  const std::vector<std::byte> memory(100'001, std::byte{3});
  KeepPages(std::span(memory).subspan(17));
  KeepPages({});
  EXPECT_EQ(memory[50'000], std::byte{3});
}

}  // namespace
}  // namespace mference
