#include "experts/slot_count.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/units.h"
#include "experts/slot_memory.h"

namespace mference {
namespace {

// Gemma 4's shape: 30 layers of 128 experts, top 8, blobs of 3,358,720 bytes.
SlotFacts Gemma(uint64_t available_bytes) {
  return {.moe_layers = 30,
          .experts_per_layer = 128,
          .top_k = 8,
          .blob_bytes = 3358720,
          .available_bytes = available_bytes};
}

TEST(SlotCount, PerLayerMeansTimesLayers) {
  // The specification's table of slot memory: 16 slots of Gemma are 1.50 GiB.
  EXPECT_EQ(SlotCount(ParseSlotRequest("16"), Gemma(2 * kGiB)), 480);
  EXPECT_EQ(FormatByteCount(480 * SlotBytes(3358720)), "1.50 GiB");
  EXPECT_EQ(SlotCount(ParseSlotRequest("128"), Gemma(16 * kGiB)), 3840);
}

TEST(SlotCount, IsClampedToTheExpertsThereAre) {
  SlotFacts tiny = Gemma(kGiB);
  tiny.moe_layers = 2;
  tiny.experts_per_layer = 4;
  tiny.top_k = 2;
  EXPECT_EQ(SlotCount(ParseSlotRequest("128"), tiny), 8);
  EXPECT_EQ(SlotCount(ParseSlotRequest("resident"), tiny), 8);
  EXPECT_EQ(SlotCount(ParseSlotRequest("auto"), tiny), 8);
}

TEST(SlotCount, AutoTakesWhatFits) {
  EXPECT_EQ(SlotCount(ParseSlotRequest("auto"), Gemma(110 * 3358720 + 5)), 110);
  EXPECT_EQ(SlotCount(ParseSlotRequest("auto"), Gemma(8 * 3358720)), 8);
}

TEST(SlotCount, RefusesWhatDoesNotFitAndNamesTheBytes) {
  for (const char* request : {"auto", "16", "resident"}) {
    try {
      SlotCount(ParseSlotRequest(request), Gemma(8 * 3358720 - 1));
      FAIL() << request;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
      EXPECT_NE(std::string(error.what()).find("--memory"), std::string::npos) << error.what();
    }
  }
}

TEST(SlotCount, ParseTakesTheSpecifiedValuesOnly) {
  for (const char* text : {"8", "16", "24", "32", "64", "96", "128"}) {
    EXPECT_EQ(ParseSlotRequest(text).per_layer, std::stoi(text));
  }
  for (const char* text : {"", "0", "7", "16 ", "-8", "256", "Auto", "8x"}) {
    EXPECT_THROW(ParseSlotRequest(text), Error) << text;
  }
}

TEST(SlotMemory, SlotsAreAlignedDisjointAndReservedFirst) {
  MemoryLedger ledger(kMiB);
  HostSlotMemory memory(ledger, 5, 20000);
  EXPECT_EQ(memory.slot_bytes(), 32768u);
  EXPECT_EQ(ledger.reserved_bytes(), 5 * 32768u);
  for (int slot = 0; slot < 5; ++slot) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.ReadTarget(slot)) % SlotMemory::kSlotAlignment,
              0u);
    EXPECT_EQ(memory.ReadTarget(slot), memory.ReadRegion().data() + slot * 32768);
    EXPECT_EQ(memory.Commit(slot), memory.ReadTarget(slot));
  }
  EXPECT_EQ(memory.ReadRegion().size(), 5 * 32768u);
}

TEST(SlotMemory, RefusesWhatTheBudgetCannotHold) {
  MemoryLedger ledger(kMiB);
  EXPECT_THROW(HostSlotMemory(ledger, 65, 16384), Error);
  EXPECT_EQ(ledger.reserved_bytes(), 0u);
  EXPECT_THROW(HostSlotMemory(ledger, 0, 16384), Error);
  EXPECT_THROW(HostSlotMemory(ledger, 1, 0), Error);
}

}  // namespace
}  // namespace mference
