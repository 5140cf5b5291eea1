#include "kernels/kernel_testing.h"

namespace mference::cpu {
namespace {

TEST(SelectKernels, AutoAndScalarAlwaysExist) {
  ASSERT_NE(SelectKernels("auto").kernels, nullptr);
  ASSERT_NE(SelectKernels("scalar").kernels, nullptr);
  EXPECT_STREQ(SelectKernels("scalar").kernels->name, "scalar");
}

TEST(SelectKernels, UnknownNamesListTheKnownOnes) {
  const KernelChoice choice = SelectKernels("sse9");
  EXPECT_EQ(choice.kernels, nullptr);
  EXPECT_NE(choice.error.find("'sse9'"), std::string::npos) << choice.error;
  EXPECT_NE(choice.error.find("avx512"), std::string::npos) << choice.error;
}

TEST(SelectKernels, SaysWhyANamedTableIsNotThere) {
  for (const char* name : {"avx2", "avx2-vnni", "avx512", "neon", "neon-i8mm"}) {
    const KernelChoice choice = SelectKernels(name);
    if (choice.kernels != nullptr) {
      EXPECT_STREQ(choice.kernels->name, name);
      EXPECT_TRUE(choice.error.empty());
    } else {
      EXPECT_NE(choice.error.find(name), std::string::npos) << choice.error;
      EXPECT_TRUE(choice.error.find("not part of this build") != std::string::npos ||
                  choice.error.find("this CPU lacks: ") != std::string::npos)
          << choice.error;
    }
  }
}

// A null entry would be a crash at the first use, on the one machine that has that table.
TEST(SelectKernels, TablesAreComplete) {
  for (const Kernels* k : RunnableKernels()) {
    EXPECT_GE(k->matmul_row_tile, 1) << k->name;
    EXPECT_TRUE(k->matmul_prepared_floats && k->matmul_prepare && k->matmul && k->dequantize_row);
    EXPECT_TRUE(k->quantised_prepared_bytes && k->quantised_prepare && k->quantised_place &&
                k->quantised_matmul);
    EXPECT_TRUE(k->single_row_prepared_bytes && k->single_row_prepare && k->single_row_matmul);
    EXPECT_TRUE(k->rms_norm && k->add_rms_norm && k->add_scaled && k->accumulate);
    EXPECT_TRUE(k->gelu_product && k->silu_product && k->softmax && k->soft_cap && k->rope);
    EXPECT_TRUE(k->dot && k->argmax);
    EXPECT_TRUE(k->f16_from_f32 && k->f32_from_f16 && k->bf16_from_f32 && k->f32_from_bf16);
    EXPECT_TRUE(k->attention_state_floats && k->attention_begin && k->attention_run &&
                k->attention_merge && k->attention_end);
  }
}

TEST(TopK, PutsTheLowerIndexFirstAmongEqualsAndNanLast) {
  const float scores[] = {1, NAN, 3, 3, -INFINITY, 2, 3};
  int32_t indices[6];
  float values[6];
  TopK(scores, 7, 6, indices, values);
  EXPECT_EQ(std::vector<int32_t>(indices, indices + 5), (std::vector<int32_t>{2, 3, 6, 5, 0}));
  EXPECT_EQ(values[3], 2.0f);
  TopK(scores, 7, 1, indices, values);
  EXPECT_EQ(indices[0], 2);
}

TEST(TopK, AgreesWithASort) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const int n = 1 + round;
    std::vector<float> scores(static_cast<size_t>(n));
    for (float& s : scores) s = static_cast<float>(random() % 50);  // many ties
    std::vector<int32_t> order(scores.size());
    for (int i = 0; i < n; ++i) order[static_cast<size_t>(i)] = i;
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
    });
    const int k = std::min(n, 16);
    std::vector<int32_t> indices(static_cast<size_t>(k));
    std::vector<float> values(static_cast<size_t>(k));
    TopK(scores.data(), n, k, indices.data(), values.data());
    EXPECT_EQ(indices, std::vector<int32_t>(order.begin(), order.begin() + k));
  }
}

}  // namespace
}  // namespace mference::cpu
