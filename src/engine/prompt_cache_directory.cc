#include "engine/prompt_cache_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/units.h"

namespace mference {
namespace {

// A file:
//   kMagic                      16 bytes, the version in it
//   header bytes                uint64, little-endian, at most kMaxHeaderBytes
//   header                      JSON: identity, and size and SHA-256 of every section
//   SHA-256 of all before       64 hex digits
//   tokens                      int32, little-endian
//   rows                        as SequenceState::VisitRows orders them
//   snapshots                   by position, as SequenceState::VisitSnapshot orders each
constexpr std::string_view kMagicStem = "mference-prefix";
constexpr std::string_view kMagic("mference-prefix\x01", 16);
constexpr uint64_t kMaxHeaderBytes = 64 * kKiB;
constexpr uint64_t kDigestBytes = 64;
constexpr std::string_view kSuffix = ".prefix";
constexpr std::string_view kTemporarySuffix = ".prefix.tmp";
constexpr size_t kNameDigits = 32;  // of a SHA-256
// Hashed and written in turns of this size, so that the bytes are in cache the second time.
constexpr size_t kPieceBytes = kMiB;

static_assert(std::endian::native == std::endian::little, "files hold native integers");

bool IsCacheName(std::string_view name, std::string_view suffix) {
  return name.size() == kNameDigits + suffix.size() && name.ends_with(suffix) &&
         name.substr(0, kNameDigits).find_first_not_of("0123456789abcdef") == std::string::npos;
}

[[noreturn]] void Damaged(const std::string& why) { Fail(ErrorCode::kChecksumMismatch, "{}", why); }

struct Section {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::string sha256 = std::string(kDigestBytes, '0');
};

struct SnapshotSection {
  int64_t position = 0;
  int64_t high_water = 0;
  Section section;
};

// A file that unlinks itself unless it is kept. The lock tells other processes that it is being
// written; it goes with the process.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::filesystem::path path)
      : path_(std::move(path)),
        file_(open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)) {
    if (!file_.valid()) FailErrno(fmt::format("cannot create {}", path_.string()), errno);
    flock(file_.get(), LOCK_EX | LOCK_NB);
  }
  ~TemporaryFile() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const FileDescriptor& file() const { return file_; }
  std::string name() const { return path_.string(); }
  void RenameTo(const std::filesystem::path& target) {
    if (rename(path_.c_str(), target.c_str()) != 0) {
      FailErrno(fmt::format("cannot rename {} to {}", path_.string(), target.string()), errno);
    }
    path_.clear();
  }

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
};

// Appends to a file, section by section.
class SectionWriter {
 public:
  SectionWriter(const TemporaryFile& file, uint64_t offset) : file_(file), offset_(offset) {}

  void Begin() {
    begin_ = offset_;
    hash_.emplace();
  }
  void Append(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto piece = bytes.first(std::min(bytes.size(), kPieceBytes));
      hash_->Update(piece);
      WriteExactly(file_.file(), offset_, piece, file_.name());
      offset_ += piece.size();
      bytes = bytes.subspan(piece.size());
    }
  }
  Section End() { return {begin_, offset_ - begin_, hash_->FinishHex()}; }

 private:
  const TemporaryFile& file_;
  uint64_t offset_;
  uint64_t begin_ = 0;
  std::optional<Sha256> hash_;
};

// Reads a section in order and checks its digest at the end.
class SectionReader {
 public:
  SectionReader(const FileDescriptor& file, const std::string& name, const Section& section)
      : file_(file), name_(name), section_(section), offset_(section.offset) {}

  void Read(std::span<std::byte> out) {
    while (!out.empty()) {
      const auto piece = out.first(std::min(out.size(), kPieceBytes));
      if (offset_ + piece.size() > section_.offset + section_.bytes) Damaged("a section is short");
      ReadExactly(file_, offset_, piece, name_);
      hash_.Update(piece);
      offset_ += piece.size();
      out = out.subspan(piece.size());
    }
  }
  void End() {
    if (offset_ != section_.offset + section_.bytes) Damaged("a section is longer than its state");
    if (hash_.FinishHex() != section_.sha256) Damaged("a checksum does not match");
  }

 private:
  const FileDescriptor& file_;
  const std::string& name_;
  const Section& section_;
  uint64_t offset_;
  Sha256 hash_;
};

// Removes the file unless some process is still writing it.
void RemoveLeftover(const std::filesystem::path& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (file.valid() && flock(file.get(), LOCK_EX | LOCK_NB) == 0) unlink(path.c_str());
}

}  // namespace

struct PromptCacheDirectory::Header {
  std::string identity;
  Section tokens;
  Section rows;
  std::vector<SnapshotSection> snapshots;

  // Of the same length whatever the digests, so that it can be written before they are known.
  std::string ToText() const {
    Json list = Json::array();
    for (const SnapshotSection& s : snapshots) {
      list.push_back({{"position", s.position},
                      {"high_water", s.high_water},
                      {"bytes", s.section.bytes},
                      {"sha256", s.section.sha256}});
    }
    const std::string json = Json{{"identity", identity},           {"tokens_bytes", tokens.bytes},
                                  {"tokens_sha256", tokens.sha256}, {"rows_bytes", rows.bytes},
                                  {"rows_sha256", rows.sha256},     {"snapshots", list}}
                                 .dump();
    const uint64_t size = json.size();
    std::string text(kMagic);
    text.append(reinterpret_cast<const char*>(&size), sizeof(size));
    text += json;
    return text + Sha256Hex(text);
  }
};

struct PromptCacheDirectory::File {
  std::string name;
  uint64_t bytes = 0;
  std::filesystem::file_time_type used;
  bool foreign = false;  // of another identity or version: nothing else is known
  Header header;
  std::vector<int32_t> tokens;
};

PromptCacheDirectory::PromptCacheDirectory(std::filesystem::path path, uint64_t limit_bytes,
                                           std::string_view identity, const StateLayout& layout,
                                           int64_t context, Warn warn)
    : path_(std::move(path)),
      limit_bytes_(limit_bytes),
      layout_(layout),
      context_(context),
      identity_(Sha256Hex(fmt::format("{}\ncontext {}\n{}", identity, context, layout.Describe()))),
      warn_(std::move(warn)) {
  if (mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) {
    FailErrno(fmt::format("cannot make the prompt cache directory {}", path_.string()), errno);
  }
  const FileDescriptor directory = OpenDirectory(path_);
  struct stat info {};
  if (fstat(directory.get(), &info) != 0) {
    FailErrno(fmt::format("cannot look at {}", path_.string()), errno);
  }
  if (info.st_uid != geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    Fail(ErrorCode::kInvalidArgument,
         "the prompt cache directory {} must belong to the user who runs mference, and no one else "
         "may write to it; choose another, or chmod it to 700",
         path_.string());
  }
  Scan();
}
PromptCacheDirectory::~PromptCacheDirectory() = default;

int64_t PromptCacheDirectory::Clear(const std::filesystem::path& path) {
  std::error_code error;
  int64_t removed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    if (IsCacheName(name, kTemporarySuffix)) RemoveLeftover(entry.path());
    if (!IsCacheName(name, kSuffix)) continue;
    if (unlink(entry.path().c_str()) != 0) {
      FailErrno(fmt::format("cannot remove {}", entry.path().string()), errno);
    }
    ++removed;
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    FailErrno(fmt::format("cannot read the prompt cache directory {}", path.string()),
              error.value());
  }
  return removed;
}

void PromptCacheDirectory::Scan() {
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    if (IsCacheName(name, kTemporarySuffix)) RemoveLeftover(entry.path());
    if (!IsCacheName(name, kSuffix)) continue;
    try {
      if (std::unique_ptr<File> file = ReadFile(name)) files_.push_back(std::move(file));
    } catch (const Error& error) {
      Discard(name, error.what());
    }
  }
  for (const std::unique_ptr<File>& file : files_) {
    counters_.bytes += file->bytes;
    ++(file->foreign ? counters_.foreign_files : counters_.files);
  }
  MakeRoom(0);  // the limit may have been lowered
}

std::unique_ptr<PromptCacheDirectory::File> PromptCacheDirectory::ReadFile(
    const std::string& name) const {
  const std::filesystem::path path = path_ / name;
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    if (errno == ENOENT) return nullptr;
    FailErrno(fmt::format("cannot open {}", path.string()), errno);
  }
  struct stat info {};
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) Damaged("it is not a regular file");
  auto file = std::make_unique<File>();
  file->name = name;
  file->bytes = static_cast<uint64_t>(info.st_size);
  file->used = std::filesystem::last_write_time(path);

  constexpr uint64_t kPrefixBytes = kMagic.size() + sizeof(uint64_t);
  if (file->bytes < kPrefixBytes + kDigestBytes) Damaged("it is cut short");
  std::string text(kPrefixBytes, '\0');
  const std::string full_name = path.string();
  ReadExactly(fd, 0, std::as_writable_bytes(std::span(text)), full_name);
  if (!text.starts_with(kMagicStem)) Damaged("it is no prompt cache file");
  if (!text.starts_with(kMagic)) {  // written by another version
    file->foreign = true;
    return file;
  }
  uint64_t json_bytes = 0;
  std::memcpy(&json_bytes, text.data() + kMagic.size(), sizeof(json_bytes));
  if (json_bytes > kMaxHeaderBytes || json_bytes > file->bytes - kPrefixBytes - kDigestBytes) {
    Damaged("its header is damaged");
  }
  text.resize(kPrefixBytes + json_bytes + kDigestBytes);
  ReadExactly(fd, 0, std::as_writable_bytes(std::span(text)), full_name);
  const std::string_view covered = std::string_view(text).substr(0, kPrefixBytes + json_bytes);
  if (Sha256Hex(covered) != std::string_view(text).substr(covered.size())) {
    Damaged("the checksum of its header does not match");
  }
  const Json document =
      ParseJson(covered.substr(kPrefixBytes), full_name, ErrorCode::kChecksumMismatch);
  const JsonReader json(document, full_name, ErrorCode::kChecksumMismatch);
  Header& header = file->header;
  header.identity = json.At("identity").String();
  if (header.identity != identity_) {
    file->foreign = true;
    return file;
  }
  uint64_t offset = text.size();
  const auto place = [&](Section& section, const JsonReader& bytes, const JsonReader& sha256) {
    section = {offset, bytes.Uint(), sha256.String()};
    if (section.bytes > file->bytes - offset) Damaged("it is cut short");
    offset += section.bytes;
  };
  place(header.tokens, json.At("tokens_bytes"), json.At("tokens_sha256"));
  place(header.rows, json.At("rows_bytes"), json.At("rows_sha256"));
  const JsonReader list = json.At("snapshots");
  const auto length = static_cast<int64_t>(header.tokens.bytes / sizeof(int32_t));
  for (size_t i = 0; i < list.ArraySize(); ++i) {
    const JsonReader entry = list.At(i);
    SnapshotSection& s = header.snapshots.emplace_back();
    s.position = entry.At("position").Int();
    s.high_water = entry.At("high_water").Int();
    place(s.section, entry.At("bytes"), entry.At("sha256"));
    if (s.position <= 0 || s.position > length || s.high_water < s.position ||
        s.high_water > context_) {
      Damaged("a snapshot lies outside of its tokens");
    }
  }
  if (offset != file->bytes) Damaged("its size does not match its header");
  if (length == 0 || length > context_) Damaged("it holds an impossible number of tokens");
  file->tokens.resize(static_cast<size_t>(length));
  SectionReader reader(fd, full_name, header.tokens);
  reader.Read(std::as_writable_bytes(std::span(file->tokens)));
  reader.End();
  return file;
}

PromptCacheDirectory::Found PromptCacheDirectory::Find(std::span<const int32_t> prompt) const {
  Found best;
  if (prompt.empty()) return best;
  const std::span<const int32_t> reusable = prompt.first(prompt.size() - 1);
  for (const std::unique_ptr<File>& file : files_) {
    if (file->foreign) continue;
    const int64_t common =
        std::mismatch(file->tokens.begin(), file->tokens.end(), reusable.begin(), reusable.end())
            .first -
        file->tokens.begin();
    for (size_t i = 0; i < file->header.snapshots.size(); ++i) {
      const SnapshotSection& s = file->header.snapshots[i];
      const bool reaches =
          s.position <= common || layout_.CanRewind(s.high_water, common, context_);
      const int64_t tokens = std::min(s.position, common);
      if (!reaches || tokens <= best.tokens) continue;
      best = {file->name, tokens, s.position};
    }
  }
  return best;
}

bool PromptCacheDirectory::Load(const Found& found, SequenceState& state,
                                std::vector<int32_t>& tokens) {
  const auto fail = [&] {
    state.Reset();
    tokens.clear();
    return false;
  };
  state.Abandon();
  try {
    // Another process may have replaced or removed it.
    const std::unique_ptr<File> file = ReadFile(found.name);
    const std::filesystem::path path = path_ / found.name;
    if (file == nullptr || file->foreign) {
      const auto at = std::find_if(files_.begin(), files_.end(),
                                   [&](const auto& f) { return f->name == found.name; });
      if (at != files_.end()) Forget(static_cast<size_t>(at - files_.begin()));
      return fail();
    }
    const std::vector<SnapshotSection>& snapshots = file->header.snapshots;
    const auto chosen = std::find_if(snapshots.begin(), snapshots.end(), [&](const auto& s) {
      return s.position == found.snapshot_position;
    });
    if (chosen == snapshots.end()) Damaged("a snapshot it had is gone");
    const std::string name = path.string();
    const FileDescriptor fd = OpenForReading(path);
    SectionReader rows(fd, name, file->header.rows);
    state.VisitRows(static_cast<int64_t>(file->tokens.size()),
                    [&](std::span<std::byte> bytes) { rows.Read(bytes); });
    rows.End();
    SectionReader rest(fd, name, chosen->section);
    state.VisitSnapshot(chosen->position, [&](std::span<std::byte> bytes) { rest.Read(bytes); });
    rest.End();
    state.Adopt(chosen->position, chosen->high_water);
    tokens.assign(file->tokens.begin(), file->tokens.begin() + chosen->position);
    futimens(fd.get(), nullptr);  // used now
    DropPageCache(fd);
    for (const std::unique_ptr<File>& known : files_) {
      if (known->name == found.name) known->used = std::filesystem::file_time_type::clock::now();
    }
    ++counters_.loads;
    return true;
  } catch (const Error& error) {
    Discard(found.name, error.what());
    return fail();
  }
}

void PromptCacheDirectory::Write(const std::string& name, const SequenceState& state,
                                 std::span<const int32_t> tokens,
                                 std::span<const StateSnapshot* const> snapshots) {
  Header header;
  header.identity = identity_;
  header.tokens.bytes = tokens.size_bytes();
  header.rows.bytes = layout_.AppendedBytes(state.position());
  for (const StateSnapshot* snapshot : snapshots) {
    header.snapshots.push_back({snapshot->position(), snapshot->high_water(), {}});
    header.snapshots.back().section.bytes = snapshot->bytes();
  }
  header.snapshots.push_back({state.position(), state.high_water(), {}});
  header.snapshots.back().section.bytes = layout_.SnapshotBytes(state.position(), context_);

  const std::filesystem::path temporary =
      path_ / (name.substr(0, kNameDigits) + std::string(kTemporarySuffix));
  RemoveLeftover(temporary);
  TemporaryFile file(temporary);
  SectionWriter writer(file, header.ToText().size());
  writer.Begin();
  writer.Append(std::as_bytes(tokens));
  header.tokens = writer.End();
  writer.Begin();
  state.VisitRows(state.position(), [&](std::span<std::byte> bytes) { writer.Append(bytes); });
  header.rows = writer.End();
  for (size_t i = 0; i < snapshots.size(); ++i) {
    writer.Begin();
    writer.Append(SequenceState::BytesOf(*snapshots[i]));
    header.snapshots[i].section = writer.End();
  }
  writer.Begin();
  state.VisitSnapshot(state.position(), [&](std::span<std::byte> bytes) { writer.Append(bytes); });
  header.snapshots.back().section = writer.End();

  const std::string text = header.ToText();
  WriteExactly(file.file(), 0, std::as_bytes(std::span(text)), file.name());
  SyncFile(file.file(), file.name());
  // Written once, read after a restart: not worth anyone's page cache.
  DropPageCache(file.file());
  file.RenameTo(path_ / name);
  SyncDirectory(path_);
}

bool PromptCacheDirectory::Save(const SequenceState& state, std::span<const int32_t> tokens,
                                std::span<const StateSnapshot* const> snapshots) {
  uint64_t bytes = kMaxHeaderBytes + tokens.size_bytes() + layout_.AppendedBytes(state.position()) +
                   layout_.SnapshotBytes(state.position(), context_);
  for (const StateSnapshot* snapshot : snapshots) bytes += snapshot->bytes();
  Sha256 hash;
  hash.Update(identity_);
  hash.Update(std::as_bytes(tokens));
  const std::string name = hash.FinishHex().substr(0, kNameDigits) + std::string(kSuffix);
  try {
    if (!MakeRoom(bytes)) {
      warn_(
          fmt::format("the prompt cache keeps nothing of {} tokens: they take {}, and its limit "
                      "is {}",
                      tokens.size(), FormatByteCount(bytes), FormatByteCount(limit_bytes_)));
      return false;
    }
    Write(name, state, tokens, snapshots);
    // What the new file continues, and an older one of its name.
    for (size_t i = files_.size(); i-- > 0;) {
      const File& old = *files_[i];
      if (old.foreign || old.tokens.size() > tokens.size() ||
          !std::equal(old.tokens.begin(), old.tokens.end(), tokens.begin())) {
        continue;
      }
      if (old.name != name) unlink((path_ / old.name).c_str());
      Forget(i);
    }
    std::unique_ptr<File> file = ReadFile(name);
    if (file == nullptr) return false;  // another process needed the room
    counters_.bytes += file->bytes;
    ++counters_.files;
    ++counters_.saves;
    files_.push_back(std::move(file));
    return true;
  } catch (const Error& error) {
    warn_(
        fmt::format("the prompt cache could not keep {} tokens: {}", tokens.size(), error.what()));
    return false;
  }
}

void PromptCacheDirectory::Forget(size_t index) {
  const File& file = *files_[index];
  counters_.bytes -= file.bytes;
  --(file.foreign ? counters_.foreign_files : counters_.files);
  files_.erase(files_.begin() + static_cast<ptrdiff_t>(index));
}

void PromptCacheDirectory::Discard(const std::string& name, const std::string& why) {
  for (size_t i = 0; i < files_.size(); ++i) {
    if (files_[i]->name == name) {
      Forget(i);
      break;
    }
  }
  unlink((path_ / name).c_str());
  ++counters_.discarded;
  warn_(fmt::format("discarded the prompt cache file {}: {}", (path_ / name).string(), why));
}

// Removes what was used longest ago until `bytes` more are within the limit.
bool PromptCacheDirectory::MakeRoom(uint64_t bytes) {
  if (bytes > limit_bytes_) return false;
  while (counters_.bytes > limit_bytes_ - bytes) {
    const auto oldest =
        std::min_element(files_.begin(), files_.end(),
                         [](const auto& a, const auto& b) { return a->used < b->used; });
    if (oldest == files_.end()) return false;
    unlink((path_ / (*oldest)->name).c_str());
    Forget(static_cast<size_t>(oldest - files_.begin()));
    ++counters_.evictions;
  }
  return true;
}

}  // namespace mference
