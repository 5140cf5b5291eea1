// The `--audit` report: every range, file and retry of an install, as JSON.
#include "format/json_writer.h"
#include "install/installer.h"

namespace mference {
namespace {

// Object members by one call each.
class Members {
 public:
  explicit Members(JsonWriter& json) : json_(json) {}
  void Text(std::string_view key, std::string_view value) {
    json_.Key(key);
    json_.String(value);
  }
  void Number(std::string_view key, uint64_t value) {
    json_.Key(key);
    json_.Uint(value);
  }
  void Flag(std::string_view key, bool value) {
    json_.Key(key);
    json_.Bool(value);
  }

 private:
  JsonWriter& json_;
};

template <typename List, typename WriteItem>
void WriteArray(JsonWriter& json, std::string_view key, const List& list, WriteItem write_item) {
  json.Key(key);
  json.BeginArray();
  for (const auto& item : list) write_item(item);
  json.EndArray();
}

}  // namespace

std::string AuditToJson(const InstallResult& result) {
  const InstallAudit& audit = result.audit;
  std::string text;
  JsonWriter json([&text](std::string_view piece) { text += piece; });
  Members members(json);
  json.BeginObject();
  members.Text("output_dir", result.directory.string());
  members.Text("model_id", result.model_id);
  members.Flag("pinned", audit.pinned);
  json.Key("wall_time_s");
  json.Double(audit.wall_time_s);
  members.Number("peak_rss_bytes", audit.peak_rss_bytes);
  members.Number("source_bytes_read", audit.source_bytes);
  members.Number("source_bytes_reused", audit.reused_source_bytes);
  members.Number("gap_bytes_read", audit.gap_bytes);
  members.Number("verification_bytes_read", audit.verification_bytes);
  members.Number("output_bytes_written", audit.output_bytes);
  members.Number("disk_needed_bytes", audit.disk.required_bytes());
  members.Number("disk_available_bytes", audit.disk.available_bytes);
  members.Number("byte_copy_tiles", audit.copied_tiles);
  members.Number("largest_scratch_bytes", audit.largest_scratch_bytes);
  members.Number("largest_transfer_bytes", audit.chunk_bytes);
  members.Flag("whole_file_heap_buffers", false);
  json.Key("bit_width_overrides_honored");
  json.Int(audit.bit_width_overrides_honored);
  members.Number("resident_entries", audit.resident_entries);
  members.Number("expert_layers", audit.expert_layers);
  members.Text("packed_expert_layout_mode", "identity");
  members.Text("source_snapshot_sha256", audit.source_index_sha256);
  members.Text("plan_fingerprint", audit.plan_fingerprint);
  members.Text("repo_id", audit.source.repository);
  members.Text("requested_revision", audit.source.requested_revision);
  members.Text("resolved_commit", audit.source.commit);
  members.Number("ranges_dropped", audit.dropped_ranges);
  WriteArray(json, "tensors_dropped_multimodal", audit.excluded_tensors,
             [&](const std::string& name) { json.String(name); });
  WriteArray(json, "ranges", audit.ranges, [&](const InstallAudit::Range& range) {
    json.BeginObject();
    members.Text("id", range.id);
    members.Text("shard", range.shard);
    members.Number("offset", range.offset);
    members.Number("bytes", range.bytes);
    members.Text("destination_digest", range.destination_digest);
    members.Flag("reused", range.reused);
    json.EndObject();
  });
  WriteArray(json, "retries", audit.retries, [&](const InstallAudit::Retry& retry) {
    json.BeginObject();
    members.Text("label", retry.label);
    members.Number("attempt", static_cast<uint64_t>(retry.attempt));
    members.Text("detail", retry.detail);
    json.EndObject();
  });
  WriteArray(json, "output_files", audit.files, [&](const InstallAudit::OutputFile& file) {
    json.BeginObject();
    members.Text("path", file.path);
    members.Number("size", file.bytes);
    members.Text("sha256", file.sha256);
    json.EndObject();
  });
  json.EndObject();
  json.Finish();
  return text;
}

}  // namespace mference
