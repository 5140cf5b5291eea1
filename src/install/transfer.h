// Carrying out a range plan: fetch, copy, flush, record; each range once, in plan order.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "install/checkpoint.h"
#include "install/events.h"
#include "install/output_hasher.h"
#include "install/outputs.h"
#include "install/range_plan.h"
#include "install/source.h"
#include "install/source_verifier.h"

namespace mference {

struct TransferOptions {
  // Ranges being fetched at once, on threads of their own; 1 fetches on the calling thread. Each
  // one more costs one temporary file of up to a chunk with remote sources.
  int ranges_in_flight = 1;
  // Flush and record a range on a thread of its own while the next one is copied.
  bool background_commit = true;
  // May throw to stop. Called from the calling thread and the fetching threads.
  std::function<void()> check_cancelled;
  // Bytes received in this run, of all ranges; never falls. From the calling thread.
  std::function<void(uint64_t fresh_bytes)> on_progress;
};

struct TransferFiles {
  FileSystem& files;
  std::filesystem::path checkpoint_path;
  OutputFiles& outputs;
  OutputHasher& hasher;
  RangeCopier& copier;
};

// What ranges must digest to, by id, where it is known from an earlier run.
using ExpectedDigests = std::map<std::string, std::string, std::less<>>;

// Transfers every range of `plan` that `checkpoint` does not have, recording each one as soon as
// its bytes are on the disk. On an error everything recorded stays recorded, except the ranges of a
// shard that `verifier` (may be null) finds not to be what was published.
void TransferRanges(SnapshotSource& source, const RangePlan& plan, Checkpoint& checkpoint,
                    const TransferFiles& target, const TransferOptions& options,
                    const ExpectedDigests& expected_digests, SourceVerifier* verifier);

}  // namespace mference
