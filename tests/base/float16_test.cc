#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>

namespace mference {
namespace {

TEST(Float16, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = FloatFromFp16(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(FloatFromFp16(Fp16FromFloat(value))));
    } else {
      EXPECT_EQ(Fp16FromFloat(value), half) << bits;
    }
  }
}

// Values of the IEEE 754 binary16 format itself.
TEST(Float16, RoundsHalfToEvenAndSaturates) {
  EXPECT_EQ(Fp16FromFloat(1.0f), 0x3c00);
  EXPECT_EQ(Fp16FromFloat(65504.0f), 0x7bff);
  EXPECT_EQ(Fp16FromFloat(65519.9f), 0x7bff);
  EXPECT_EQ(Fp16FromFloat(65520.0f), 0x7c00);
  EXPECT_EQ(Fp16FromFloat(1.0f + 0x1p-11f), 0x3c00);      // tie, even below
  EXPECT_EQ(Fp16FromFloat(1.0f + 3 * 0x1p-11f), 0x3c02);  // tie, even above
  EXPECT_EQ(Fp16FromFloat(0x1p-24f), 0x0001);
  EXPECT_EQ(Fp16FromFloat(0x1p-25f), 0x0000);  // tie to zero
  EXPECT_EQ(Fp16FromFloat(0x1.8p-25f), 0x0001);
  EXPECT_EQ(Fp16FromFloat(-0.0f), 0x8000);
}

TEST(Bfloat16, IsTheTopHalfRoundedToEven) {
  EXPECT_EQ(Bf16FromFloat(1.0f), 0x3f80);
  EXPECT_EQ(Bf16FromFloat(1.0f + 0x1p-8f), 0x3f80);  // tie, even below
  EXPECT_EQ(Bf16FromFloat(1.0f + 3 * 0x1p-8f), 0x3f82);
  EXPECT_EQ(FloatFromBf16(0x4254), 53.0f);  // the bf16 Gemma embedding factor
  EXPECT_TRUE(std::isnan(FloatFromBf16(Bf16FromFloat(NAN))));
}

}  // namespace
}  // namespace mference
