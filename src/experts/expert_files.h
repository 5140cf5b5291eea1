// Where expert blobs come from, as plain data: the store knows nothing of the format above it.
//
// Routed experts live in one file per MoE layer, one contiguous blob per expert, all blobs of a
// model equally long (the stride). The owner of the format describes this and supplies a callback
// that opens a layer's file; whatever has to be verified before the first byte is trusted (size,
// hash) happens inside that callback.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"

namespace mference {

// An opened file of one layer.
struct LayerFile {
  FileDescriptor file;                 // read-only and the store's alone: it may set O_DIRECT
  std::string name;                    // path for messages
  std::vector<uint64_t> blob_offsets;  // [experts_per_layer], bytes from the start of the file
};

struct ExpertFiles {
  int layers = 0;             // layers are numbered [0, layers); dense ones are never opened
  int experts_per_layer = 0;  // experts are numbered [0, experts_per_layer)
  uint64_t blob_bytes = 0;    // length of every blob, padding included
  // Called on the store's thread, once, when a layer is used for the first time (again after a
  // failure). May throw `Error`: the stream that asked then fails with that error.
  std::function<LayerFile(int layer)> open_layer;
};

}  // namespace mference
