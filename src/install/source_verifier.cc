#include "install/source_verifier.h"

#include <algorithm>

#include "base/error.h"

namespace mference {

SourceVerifier::SourceVerifier(SnapshotSource& source, const RangePlan& plan,
                               const std::vector<SourceShard>& shards, const Checkpoint& saved,
                               std::span<std::byte> scratch, std::function<void()> check_cancelled)
    : source_(source),
      plan_(plan),
      shards_(shards),
      saved_(saved),
      scratch_(scratch),
      check_cancelled_(std::move(check_cancelled)),
      progress_(saved.source_progress) {}

void SourceVerifier::BeginShard(uint32_t shard) {
  shard_ = nullptr;
  hash_.reset();
  const SourceShard& candidate = shards_[shard];
  if (candidate.info.sha256.empty() || progress_.verified_shards.contains(candidate.name)) return;
  hash_.emplace();
  if (progress_.shard == candidate.name) {
    if (auto saved = ResumableSha256::Load(progress_.hash_state)) hash_ = std::move(*saved);
  }
  // Ranges that are on disk but were never hashed leave nothing to continue from.
  for (size_t i = 0; i < plan_.ranges.size(); ++i) {
    const SourceRange& range = plan_.ranges[i];
    if (range.shard == shard && range.offset + range.bytes > hash_->bytes() &&
        saved_.completed.contains(RangePlan::RangeId(i))) {
      hash_.reset();
      return;
    }
  }
  shard_ = &candidate;
  progress_.shard = candidate.name;
  Save();
}

void SourceVerifier::AddRange(const SourceRange& range, FetchedRange& bytes) {
  if (shard_ == nullptr || range.offset + range.bytes <= hash_->bytes()) return;
  HashGap(range.offset);
  for (uint64_t done = 0; done < range.bytes; done += scratch_.size()) {
    check_cancelled_();
    const auto tile = scratch_.first(std::min<uint64_t>(scratch_.size(), range.bytes - done));
    bytes.ReadAt(done, tile);
    hash_->Update(tile);
  }
  Save();
}

bool SourceVerifier::EndShard() {
  if (shard_ == nullptr) return true;
  HashGap(shard_->info.bytes);
  const bool matches = hash_->FinishHex() == shard_->info.sha256;
  if (matches) progress_.verified_shards.insert(shard_->name);
  progress_.shard.clear();
  progress_.hash_state.clear();
  shard_ = nullptr;
  hash_.reset();
  return matches;
}

void SourceVerifier::HashGap(uint64_t end) {
  const uint64_t begin = hash_->bytes();
  if (begin >= end) return;
  source_.StreamBytes(shard_->name, begin, end - begin, [&](std::span<const std::byte> piece) {
    check_cancelled_();
    hash_->Update(piece);
  });
  extra_bytes_ += end - begin;
  Check(hash_->bytes() == end, "a gap of the source came short");
}

void SourceVerifier::Save() { progress_.hash_state = hash_->Save(); }

}  // namespace mference
