// From a source snapshot to a complete install plan: resident index, expert layout, copies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/layout.h"
#include "format/manifest.h"
#include "format/resident_index.h"
#include "install/range_plan.h"
#include "install/snapshot.h"

namespace mference {

struct RepackPlan {
  ResidentIndex resident_index;
  std::vector<std::byte> index_region;  // the head of model_weights.bin, final
  Layout layout;
  QuantConfig quant;
  RangePlan ranges;
  std::string fingerprint;
  std::vector<std::string> excluded;  // source tensors that are not stored
};

// Decides the fate of every source tensor and checks all of them against the architecture: shapes,
// types, bits and groups (from the sizes, compared with the config), nothing missing, nothing
// unknown. Throws kSourceInvalid naming the tensor, kQuantUnsupported.
RepackPlan PlanRepack(const Snapshot& snapshot, uint64_t chunk_bytes);

// The manifest of the install, with an empty file table.
Manifest MakeManifest(const Snapshot& snapshot, const RepackPlan& plan);

}  // namespace mference
