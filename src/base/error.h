// The one error type that crosses module borders.
//
// Everything that fails outside the hot path throws `Error`: a stable code that programs and tests
// can match, and a message that says what happened, where, what was expected, what was found, and
// what the user can do. The token loop itself neither throws nor catches.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace mference {

// Stable names: they appear in `--json` output and in tests. Append, never rename.
enum class ErrorCode {
  kInvalidArgument,  // a caller or a command line asked for something that has no meaning
  kNotFound,         // a file, model or tensor that was named does not exist
  kIo,               // the operating system refused or failed a file operation
  kCancelled,        // the user stopped it
  kOutOfBudget,      // the memory budget cannot hold what was asked
  kInternal,         // an invariant of our own broke: a bug
  // Loading a .gturbo directory; the names are those of the format specification.
  kNotADirectory,
  kPartialInstall,
  kMetadataTooLarge,
  kManifestCorrupt,
  kUnknownFamily,
  kReceiptInvalid,
  kNotGturbo,
  kUnsupportedVersion,
  kUnknownFlag,
  kRemovedFeature,
  kArchMismatch,
  kQuantMissing,
  kQuantUnsupported,
  kFlashHeadInvalid,
  kStrideMisaligned,
  kMissingFile,
  kChecksumMismatch,
  kIndexCorrupt,
  kLayoutCorrupt,
  kSizeMismatch,
  kTensorNotFound,
  kTensorSizeMismatch,
  // Source snapshots and installing.
  kSourceInvalid,  // a checkpoint that cannot be read or is not what it claims to be
  kInstallState,   // a saved, locked or foreign install stands in the way
  kDiskFull,
  kNetwork,
  // Text.
  kTokenizerInvalid,
  kTemplateInvalid,  // a chat template that does not parse or render
  kMessagesInvalid,  // a conversation that cannot be rendered
  kContextFull,      // the prompt does not fit the context
  kMalformedToolCall,
  kSchemaUnsupported,  // a JSON schema that a reply cannot be constrained to
};

// The stable snake_case name, e.g. `checksum_mismatch`.
const char* ErrorCodeName(ErrorCode code);

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// Throws `Error` with a formatted message.
template <typename... Args>
[[noreturn]] void Fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// Throws kIo with `what` and the text of `errno_value`.
[[noreturn]] void FailErrno(const std::string& what, int errno_value);

// Throws kInternal unless `condition` holds. For invariants of ours, not for input.
inline void Check(bool condition, const char* what) {
  if (!condition) Fail(ErrorCode::kInternal, "internal error: {}", what);
}

}  // namespace mference
