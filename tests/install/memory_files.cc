#include "install/memory_files.h"

#include <algorithm>
#include <cerrno>

#include "base/error.h"

namespace mference::testing {

struct MemoryFileSystem::Node {
  bool is_directory = false;
  std::string content;                             // of a file
  std::string durable_content;                     //
  std::map<std::string, NodePtr> entries;          // of a directory
  std::map<std::string, NodePtr> durable_entries;  //
};

class MemoryFileSystem::OpenedFile final : public File {
 public:
  OpenedFile(MemoryFileSystem& files, NodePtr node, std::string name)
      : files_(files), node_(std::move(node)), name_(std::move(name)) {}

  void ReadAt(uint64_t offset, std::span<std::byte> out) override {
    const std::lock_guard lock(files_.mutex_);
    if (offset + out.size() > node_->content.size()) {
      Fail(ErrorCode::kIo, "{} ends before {}", name_, offset + out.size());
    }
    std::copy_n(reinterpret_cast<const std::byte*>(node_->content.data()) + offset, out.size(),
                out.begin());
  }
  void WriteAt(uint64_t offset, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(files_.mutex_);
    if (offset + bytes.size() > node_->content.size()) {
      node_->content.resize(offset + bytes.size());
    }
    std::copy(bytes.begin(), bytes.end(),
              reinterpret_cast<std::byte*>(node_->content.data()) + offset);
  }
  void Resize(uint64_t size) override {
    const std::lock_guard lock(files_.mutex_);
    node_->content.resize(size);
  }
  void Sync() override {
    const std::lock_guard lock(files_.mutex_);
    node_->durable_content = node_->content;
  }
  uint64_t Size() override {
    const std::lock_guard lock(files_.mutex_);
    return node_->content.size();
  }

 private:
  MemoryFileSystem& files_;
  const NodePtr node_;
  const std::string name_;
};

MemoryFileSystem::MemoryFileSystem() : root_(std::make_shared<Node>()) {
  root_->is_directory = true;
}
MemoryFileSystem::~MemoryFileSystem() = default;

MemoryFileSystem::NodePtr MemoryFileSystem::Find(const Path& path) const {
  NodePtr node = root_;
  for (const Path& part : path.relative_path()) {
    if (!node->is_directory) return nullptr;
    const auto entry = node->entries.find(part.string());
    if (entry == node->entries.end()) return nullptr;
    node = entry->second;
  }
  return node;
}

MemoryFileSystem::NodePtr MemoryFileSystem::Require(const Path& path) const {
  NodePtr node = Find(path);
  if (node == nullptr) Fail(ErrorCode::kIo, "{} does not exist", path.string());
  return node;
}

void MemoryFileSystem::Restore(Node& node, Loss loss) {
  if (!node.is_directory) {
    if (loss != Loss::kDirectoryEntries) node.content = node.durable_content;
    node.durable_content = node.content;
    return;
  }
  if (loss != Loss::kContents) node.entries = node.durable_entries;
  node.durable_entries = node.entries;
  for (auto& [name, entry] : node.entries) Restore(*entry, loss);
}

void MemoryFileSystem::PowerCut(Loss loss) {
  const std::lock_guard lock(mutex_);
  Restore(*root_, loss);
}

std::map<std::string, std::string> MemoryFileSystem::Tree() const {
  std::map<std::string, std::string> tree;
  const std::function<void(const Node&, const std::string&)> walk = [&](const Node& node,
                                                                        const std::string& path) {
    if (!node.is_directory) tree.emplace(path, node.content);
    for (const auto& [name, entry] : node.entries) walk(*entry, path + "/" + name);
  };
  const std::lock_guard lock(mutex_);
  walk(*root_, "");
  return tree;
}

std::string MemoryFileSystem::Content(const Path& path) const {
  const std::lock_guard lock(mutex_);
  return Require(path)->content;
}

void MemoryFileSystem::FlipByte(const Path& path, uint64_t offset) {
  const std::lock_guard lock(mutex_);
  const NodePtr node = Require(path);
  node->content.at(offset) ^= 0x55;
  node->durable_content = node->content;
}

FileSystem::Path MemoryFileSystem::MakeDirectories(const Path& directory) {
  const std::lock_guard lock(mutex_);
  NodePtr node = root_;
  for (const Path& part : directory.relative_path()) {
    NodePtr& entry = node->entries[part.string()];
    if (entry == nullptr) {
      entry = std::make_shared<Node>();
      entry->is_directory = true;
      node->durable_entries = node->entries;
    }
    node = entry;
  }
  return directory;
}

EntryType MemoryFileSystem::Examine(const Path& path) {
  const std::lock_guard lock(mutex_);
  const NodePtr node = Find(path);
  if (node == nullptr) return EntryType::kNone;
  return node->is_directory ? EntryType::kDirectory : EntryType::kFile;
}

std::unique_ptr<File> MemoryFileSystem::CreateFile(const Path& path, unsigned /*mode*/) {
  const std::lock_guard lock(mutex_);
  NodePtr& entry = Require(path.parent_path())->entries[path.filename().string()];
  if (entry != nullptr) Fail(ErrorCode::kIo, "{} exists", path.string());
  entry = std::make_shared<Node>();
  return std::make_unique<OpenedFile>(*this, entry, path.string());
}

std::unique_ptr<File> MemoryFileSystem::OpenFile(const Path& path, FileAccess /*access*/) {
  const std::lock_guard lock(mutex_);
  return std::make_unique<OpenedFile>(*this, Require(path), path.string());
}

void MemoryFileSystem::CreateDirectory(const Path& path) {
  const std::lock_guard lock(mutex_);
  NodePtr& entry = Require(path.parent_path())->entries[path.filename().string()];
  if (entry != nullptr) Fail(ErrorCode::kIo, "{} exists", path.string());
  entry = std::make_shared<Node>();
  entry->is_directory = true;
}

std::vector<std::string> MemoryFileSystem::List(const Path& directory) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, entry] : Require(directory)->entries) names.push_back(name);
  return names;
}

void MemoryFileSystem::Rename(const Path& from, const Path& to) {
  const std::lock_guard lock(mutex_);
  const NodePtr node = Require(from);
  Require(to.parent_path())->entries[to.filename().string()] = node;
  Require(from.parent_path())->entries.erase(from.filename().string());
}

bool MemoryFileSystem::Exchange(const Path& a, const Path& b) {
  const std::lock_guard lock(mutex_);
  if (!can_exchange_) return false;
  std::swap(Require(a.parent_path())->entries.at(a.filename().string()),
            Require(b.parent_path())->entries.at(b.filename().string()));
  return true;
}

void MemoryFileSystem::RemoveFile(const Path& path) {
  const std::lock_guard lock(mutex_);
  Require(path);
  Require(path.parent_path())->entries.erase(path.filename().string());
}

void MemoryFileSystem::RemoveDirectory(const Path& path) {
  const std::lock_guard lock(mutex_);
  if (!Require(path)->entries.empty()) Fail(ErrorCode::kIo, "{} is not empty", path.string());
  Require(path.parent_path())->entries.erase(path.filename().string());
}

void MemoryFileSystem::SyncDirectory(const Path& directory) {
  const std::lock_guard lock(mutex_);
  const NodePtr node = Require(directory);
  node->durable_entries = node->entries;
}

uint64_t MemoryFileSystem::AvailableBytes(const Path& /*directory*/) { return available_bytes_; }

namespace {

class NoLock final : public FileLock {
 public:
  void Describe(std::string_view /*text*/) override {}
};

}  // namespace

std::unique_ptr<FileLock> MemoryFileSystem::TryLock(const Path& /*path*/) {
  return std::make_unique<NoLock>();
}

// --- FaultyFileSystem ------------------------------------------------------------------------

class FaultyFileSystem::CountedFile final : public File {
 public:
  CountedFile(FaultyFileSystem& files, std::unique_ptr<File> below, std::string name)
      : files_(files), below_(std::move(below)), name_(std::move(name)) {}

  void ReadAt(uint64_t offset, std::span<std::byte> out) override { below_->ReadAt(offset, out); }
  void WriteAt(uint64_t offset, std::span<const std::byte> bytes) override {
    // Half a write may happen before the end.
    try {
      files_.Change("write " + name_);
    } catch (const Killed&) {
      below_->WriteAt(offset, bytes.first(bytes.size() / 2));
      throw;
    }
    below_->WriteAt(offset, bytes);
  }
  void Resize(uint64_t size) override {
    files_.Change("resize " + name_);
    below_->Resize(size);
  }
  void Sync() override {
    files_.Change("flush " + name_);
    below_->Sync();
  }
  uint64_t Size() override { return below_->Size(); }

 private:
  FaultyFileSystem& files_;
  const std::unique_ptr<File> below_;
  const std::string name_;
};

void FaultyFileSystem::Change(const std::string& what) { at_change_(changes_++, what); }

EntryType FaultyFileSystem::Examine(const Path& path) { return below_.Examine(path); }
std::unique_ptr<File> FaultyFileSystem::CreateFile(const Path& path, unsigned mode) {
  Change("create " + path.string());
  return std::make_unique<CountedFile>(*this, below_.CreateFile(path, mode), path.string());
}
std::unique_ptr<File> FaultyFileSystem::OpenFile(const Path& path, FileAccess access) {
  return std::make_unique<CountedFile>(*this, below_.OpenFile(path, access), path.string());
}
void FaultyFileSystem::CreateDirectory(const Path& path) {
  Change("create directory " + path.string());
  below_.CreateDirectory(path);
}
std::vector<std::string> FaultyFileSystem::List(const Path& directory) {
  return below_.List(directory);
}
void FaultyFileSystem::Rename(const Path& from, const Path& to) {
  Change("rename " + from.string());
  below_.Rename(from, to);
}
bool FaultyFileSystem::Exchange(const Path& a, const Path& b) {
  Change("exchange " + a.string());
  return below_.Exchange(a, b);
}
void FaultyFileSystem::RemoveFile(const Path& path) {
  Change("remove " + path.string());
  below_.RemoveFile(path);
}
void FaultyFileSystem::RemoveDirectory(const Path& path) {
  Change("remove directory " + path.string());
  below_.RemoveDirectory(path);
}
void FaultyFileSystem::SyncDirectory(const Path& directory) {
  Change("flush directory " + directory.string());
  below_.SyncDirectory(directory);
}
uint64_t FaultyFileSystem::AvailableBytes(const Path& directory) {
  return below_.AvailableBytes(directory);
}
std::unique_ptr<FileLock> FaultyFileSystem::TryLock(const Path& path) {
  return below_.TryLock(path);
}

}  // namespace mference::testing
