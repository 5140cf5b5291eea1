#include "engine/plan_estimate.h"

#include <algorithm>
#include <limits>

#include "base/units.h"

namespace mference {
namespace {

constexpr int64_t kFloatBytes = 4;
// Rows of a ring beyond its window.
constexpr int64_t kRingSlackRows = 128;
// Attention partials of the threads and other tables that do not grow with the rows.
constexpr uint64_t kFixedScratchBytes = 8 * kMiB;
// Tables of a BPE vocabulary with its merges, per entry.
constexpr uint64_t kTokenizerBytesPerToken = 160;

int64_t BytesOf(ElementType type) { return type == ElementType::kF32 ? 4 : 2; }

void AddAttention(const ArchConfig& arch, bool full, int64_t element_bytes, StateLayout& layout) {
  const int64_t row_bytes = element_bytes * (full ? arch.num_full_kv_heads * arch.full_head_dim
                                                  : arch.num_kv_heads * arch.head_dim);
  for (const char* what : {"keys", "values"}) {
    if (full) {
      layout.AddAppend(what, row_bytes);
    } else {
      layout.AddRing(what, row_bytes, arch.sliding_window, arch.sliding_window + kRingSlackRows);
    }
  }
}

// The recurrent matrix of every value head, and the tail of the convolution before it.
void AddDeltaNet(const ArchConfig& arch, StateLayout& layout) {
  layout.AddFixed("matrix", kFloatBytes * arch.linear_num_v_heads * arch.linear_key_head_dim *
                                arch.linear_value_head_dim);
  const int64_t channels = 2 * arch.linear_num_k_heads * arch.linear_key_head_dim +
                           arch.linear_num_v_heads * arch.linear_value_head_dim;
  layout.AddFixed("convolution",
                  kFloatBytes * channels * std::max<int64_t>(arch.linear_conv_kernel_size - 1, 0));
}

// One shared key-value head: the window, and an entry for every `rate` positions before it.
void AddCompressed(const ArchConfig& arch, bool sparse, int64_t element_bytes,
                   StateLayout& layout) {
  const int64_t row_bytes = arch.head_dim * element_bytes;
  layout.AddRing("window", row_bytes, arch.sliding_window, arch.sliding_window + kRingSlackRows);
  const auto rate = static_cast<int32_t>(
      std::max<int64_t>(sparse ? arch.ca_csa_compress_rate : arch.ca_hca_compress_rate, 1));
  layout.AddAppend("entries", row_bytes, rate);
  if (sparse) layout.AddAppend("index", arch.ca_index_head_dim * element_bytes, rate);
}

// Activations of one row, in floats: residual and normed copies, attention, the feed-forwards. An
// expert's rows are gathered, doubled and scattered once more.
int64_t ActivationsPerRow(const ArchConfig& arch) {
  const int64_t attention =
      arch.num_heads * std::max(arch.head_dim, arch.full_head_dim) +
      2 * std::max(arch.num_kv_heads * arch.head_dim, arch.num_full_kv_heads * arch.full_head_dim);
  const int64_t streams = std::max<int64_t>(arch.hc_mult, 1);
  return (8 + 2 * streams) * arch.hidden_size + 2 * attention + 4 * arch.ffn_intermediate +
         4 * arch.moe_intermediate_size + 2 * arch.num_experts;
}

}  // namespace

StateLayout EstimateStateLayout(const ArchConfig& arch, ElementType kv_type) {
  StateLayout layout;
  for (const LayerKind kind : arch.layer_kinds) {
    switch (kind) {
      case LayerKind::kSlidingWindow:
      case LayerKind::kFullAttention:
        AddAttention(arch, kind == LayerKind::kFullAttention, BytesOf(kv_type), layout);
        break;
      case LayerKind::kGatedDeltaNet:
        AddDeltaNet(arch, layout);
        break;
      case LayerKind::kCompressedSparse:
      case LayerKind::kHeavilyCompressed:
        AddCompressed(arch, kind == LayerKind::kCompressedSparse, BytesOf(kv_type), layout);
        break;
    }
  }
  return layout;
}

MemoryPlanInput EstimatePlanInput(const ModelSizes& sizes, const LoadOptions& options) {
  const ArchConfig& arch = sizes.arch;
  const auto vocab = static_cast<uint64_t>(arch.vocab_size);
  MemoryPlanInput input = PlanInputFor(options, sizes.weight_bytes,
                                       vocab * kTokenizerBytesPerToken + Tokenizer::kScratchBytes,
                                       static_cast<int32_t>(arch.vocab_size));
  input.scratch_bytes = [row_bytes = static_cast<uint64_t>(ActivationsPerRow(arch) * kFloatBytes),
                         logits_bytes =
                             Backend::kMaxLogitsRows * vocab * kFloatBytes](int32_t rows) {
    return kFixedScratchBytes + logits_bytes + static_cast<uint64_t>(rows) * row_bytes;
  };
  input.slot_facts = {.moe_layers = static_cast<int>(arch.num_layers - arch.num_dense_layers),
                      .experts_per_layer = static_cast<int>(arch.num_experts),
                      .top_k = static_cast<int>(arch.top_k_experts),
                      .blob_bytes = sizes.expert_stride};
  if (!arch.tie_word_embeddings) {
    // 4-bit codes, and a BF16 scale and bias for every 64 columns.
    input.table_bytes = vocab * static_cast<uint64_t>(arch.hidden_size) / 64 * (64 / 2 + 4);
  }
  const StateLayout layout = EstimateStateLayout(arch, options.kv_type);
  if (options.context == kAutomaticContext) {
    input.context = AutomaticContext(input, std::numeric_limits<int64_t>::max(),
                                     [&](int64_t context) { return layout.BytesFor(context); });
  }
  PlanState(options, layout, input.context, input);
  return input;
}

}  // namespace mference
