#include "bench/model_work.h"

#include <algorithm>

namespace mference::bench {
namespace {

bool IsEmbedding(const ResidentTensor& tensor) {
  return tensor.name.find("embed") != std::string::npos && tensor.rank() == 2;
}

bool IsHead(const ResidentTensor& tensor) {
  return tensor.name.find("lm_head") != std::string::npos && tensor.rank() == 2;
}

double BytesOf(const ResidentTensor& tensor) {
  return static_cast<double>(tensor.weight.bytes + tensor.scales.bytes + tensor.biases.bytes);
}

double OperationsOf(const ExpertMatrix& matrix) {
  return 2.0 * static_cast<double>(matrix.rows) * static_cast<double>(matrix.columns);
}

}  // namespace

double ModelWork::StateBytes(const StateLayout& layout, int64_t position) {
  double bytes = 0;
  for (const StateBlockSpec& block : layout.blocks()) {
    const auto row_bytes = static_cast<double>(block.row_bytes);
    switch (block.kind) {
      case StateKind::kAppend:
        bytes += row_bytes * static_cast<double>(position / block.rate);
        break;
      case StateKind::kRing:
        bytes += row_bytes * static_cast<double>(std::min(position, block.window));
        break;
      case StateKind::kFixed:
        bytes += 2 * row_bytes;
        break;
    }
  }
  return bytes;
}

ModelWork WorkOf(LoadedModel& loaded) {
  const ModelDirectory& directory = loaded.directory();
  const std::vector<ResidentTensor>& tensors = directory.resident_index().tensors;
  // A tied head reads the whole embedding; with a head of its own, a token reads one row of it.
  const bool has_head = std::any_of(tensors.begin(), tensors.end(), IsHead);
  ModelWork work;
  for (const ResidentTensor& tensor : tensors) {
    if (has_head && IsEmbedding(tensor)) continue;
    work.resident_bytes += BytesOf(tensor);
    if (tensor.rank() != 2) continue;
    const double operations = 2.0 * static_cast<double>(tensor.element_count());
    (IsHead(tensor) || IsEmbedding(tensor) ? work.head_operations : work.operations) += operations;
  }
  const auto top_k = static_cast<double>(directory.manifest().arch.top_k_experts);
  for (const LayerLayout& layer : directory.layout().layers) {
    if (layer.expert_offsets.empty()) continue;
    work.expert_bytes += top_k * static_cast<double>(directory.layout().expert_stride);
    work.operations += top_k * (OperationsOf(layer.blob.gate) + OperationsOf(layer.blob.up) +
                                OperationsOf(layer.blob.down));
  }
  return work;
}

}  // namespace mference::bench
