#include "install/outputs.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/error.h"
#include "format/manifest.h"

namespace mference {
namespace {

constexpr unsigned kOutputMode = 0644;

bool HasIndex(File& file, std::span<const std::byte> index_region) {
  std::vector<std::byte> found(index_region.size());
  file.ReadAt(0, found);
  return std::equal(found.begin(), found.end(), index_region.begin());
}

}  // namespace

ScratchBuffer::ScratchBuffer(size_t bytes)
    : data_(static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes))), size_(bytes) {
  if (data_ == nullptr) throw std::bad_alloc();
}

void ScratchBuffer::Free::operator()(std::byte* data) const { std::free(data); }

OutputFiles OutputFiles::Create(FileSystem& files, const FileSystem::Path& directory,
                                const RangePlan& plan, std::span<const std::byte> index_region) {
  OutputFiles outputs;
  files.CreateDirectory(directory / kExpertsDirectory);
  for (const PlannedOutput& planned : plan.outputs) {
    std::unique_ptr<File> file = files.CreateFile(directory / planned.path, kOutputMode);
    file->Resize(planned.bytes);
    if (planned.path == kWeightsFile) file->WriteAt(0, index_region);
    file->Sync();
    outputs.files_.push_back(std::move(file));
  }
  files.SyncDirectory(directory / kExpertsDirectory);
  files.SyncDirectory(directory);
  return outputs;
}

std::unique_ptr<OutputFiles> OutputFiles::OpenMatching(FileSystem& files,
                                                       const FileSystem::Path& directory,
                                                       const RangePlan& plan,
                                                       std::span<const std::byte> index_region) {
  auto outputs = std::make_unique<OutputFiles>();
  for (const PlannedOutput& planned : plan.outputs) {
    const FileSystem::Path path = directory / planned.path;
    if (files.Examine(path) != EntryType::kFile) return nullptr;
    std::unique_ptr<File> file = files.OpenFile(path, FileAccess::kReadWrite);
    if (file->Size() != planned.bytes) return nullptr;
    if (planned.path == kWeightsFile && !HasIndex(*file, index_region)) return nullptr;
    outputs->files_.push_back(std::move(file));
  }
  return outputs;
}

std::string RangeCopier::Copy(size_t range_number, FetchedRange& source) {
  const SourceRange& range = plan_.ranges[range_number];
  RangeDigest digest(plan_, range_number);
  for (const ScalarCopy& copy : plan_.CopiesOf(range)) {
    digest.BeginCopy(copy);
    const uint64_t unit = copy.transform.unit_bytes();
    const uint64_t expansion = copy.transform.expansion();
    const uint64_t tile_bytes = scratch_.size() / expansion / unit * unit;
    Check(tile_bytes > 0, "a transform expands beyond the scratch buffer");
    File& output = outputs_.file(copy.output);
    for (uint64_t done = 0; done < copy.source_bytes; done += tile_bytes) {
      check_cancelled_();
      const size_t bytes = std::min(tile_bytes, copy.source_bytes - done);
      source.ReadAt(copy.source_offset - range.offset + done, scratch_.first(bytes));
      if (copy.ternary && HasInvalidTernaryCode(scratch_.first(bytes))) {
        Fail(ErrorCode::kSourceInvalid,
             "{} holds ternary code 3 within [{}, {}): the checkpoint is damaged",
             plan_.shards[range.shard], copy.source_offset + done,
             copy.source_offset + done + bytes);
      }
      ApplyTransform(copy.transform, scratch_, bytes);
      const std::span<const std::byte> written = scratch_.first(bytes * expansion);
      digest.Update(written);
      output.WriteAt(copy.output_offset + done * expansion, written);
      ++tiles_;
    }
  }
  return digest.FinishHex();
}

std::string RangeCopier::Redigest(size_t range_number) {
  RangeDigest digest(plan_, range_number);
  for (const ScalarCopy& copy : plan_.CopiesOf(plan_.ranges[range_number])) {
    digest.BeginCopy(copy);
    for (uint64_t done = 0; done < copy.output_bytes(); done += scratch_.size()) {
      check_cancelled_();
      const auto tile =
          scratch_.first(std::min<uint64_t>(scratch_.size(), copy.output_bytes() - done));
      outputs_.file(copy.output).ReadAt(copy.output_offset + done, tile);
      digest.Update(tile);
    }
  }
  return digest.FinishHex();
}

void SyncOutputsOf(const RangePlan& plan, size_t range, OutputFiles& outputs) {
  std::set<uint32_t> touched;
  for (const ScalarCopy& copy : plan.CopiesOf(plan.ranges[range])) touched.insert(copy.output);
  for (const uint32_t output : touched) outputs.file(output).Sync();
}

}  // namespace mference
