// Text that commands are given: files, standard input, lines at a prompt.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace mference::cli {

constexpr uint64_t kMaxInputBytes = uint64_t{256} << 20;

// A whole file, a pipe up to its end, or standard input for "-". Throws kNotFound, kIo,
// kMetadataTooLarge above kMaxInputBytes.
std::string ReadInput(const std::filesystem::path& path);
bool InputIsTerminal();

enum class LineStatus { kLine, kEnd, kInterrupted };

// Lines of standard input. Reads nothing ahead of need on a terminal, whose own line editing
// applies. A signal interrupts the wait.
class LineReader {
 public:
  // The next line without its end. Throws kIo, and kMetadataTooLarge for an endless line.
  LineStatus Next(std::string* line);

 private:
  std::string pending_;
  bool ended_ = false;
};

// Without white space at both ends.
std::string_view Trimmed(std::string_view text);

}  // namespace mference::cli
