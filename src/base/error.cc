#include "base/error.h"

#include <system_error>

namespace mference {

const char* ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kIo:
      return "io_error";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kOutOfBudget:
      return "out_of_budget";
    case ErrorCode::kInternal:
      return "internal_error";
    case ErrorCode::kNotADirectory:
      return "not_a_directory";
    case ErrorCode::kPartialInstall:
      return "partial_install";
    case ErrorCode::kMetadataTooLarge:
      return "metadata_too_large";
    case ErrorCode::kManifestCorrupt:
      return "manifest_corrupt";
    case ErrorCode::kUnknownFamily:
      return "unknown_family";
    case ErrorCode::kReceiptInvalid:
      return "receipt_invalid";
    case ErrorCode::kNotGturbo:
      return "not_gturbo";
    case ErrorCode::kUnsupportedVersion:
      return "unsupported_version";
    case ErrorCode::kUnknownFlag:
      return "unknown_flag";
    case ErrorCode::kRemovedFeature:
      return "removed_feature";
    case ErrorCode::kArchMismatch:
      return "arch_mismatch";
    case ErrorCode::kQuantMissing:
      return "quant_missing";
    case ErrorCode::kQuantUnsupported:
      return "quant_unsupported";
    case ErrorCode::kFlashHeadInvalid:
      return "flash_head_invalid";
    case ErrorCode::kStrideMisaligned:
      return "stride_misaligned";
    case ErrorCode::kMissingFile:
      return "missing_file";
    case ErrorCode::kChecksumMismatch:
      return "checksum_mismatch";
    case ErrorCode::kIndexCorrupt:
      return "index_corrupt";
    case ErrorCode::kLayoutCorrupt:
      return "layout_corrupt";
    case ErrorCode::kSizeMismatch:
      return "size_mismatch";
    case ErrorCode::kTensorNotFound:
      return "tensor_not_found";
    case ErrorCode::kTensorSizeMismatch:
      return "tensor_size_mismatch";
    case ErrorCode::kSourceInvalid:
      return "source_invalid";
    case ErrorCode::kInstallState:
      return "install_state";
    case ErrorCode::kDiskFull:
      return "disk_full";
    case ErrorCode::kNetwork:
      return "network_error";
    case ErrorCode::kTokenizerInvalid:
      return "tokenizer_invalid";
    case ErrorCode::kTemplateInvalid:
      return "template_invalid";
    case ErrorCode::kMessagesInvalid:
      return "messages_invalid";
    case ErrorCode::kContextFull:
      return "context_full";
    case ErrorCode::kMalformedToolCall:
      return "malformed_tool_call";
    case ErrorCode::kSchemaUnsupported:
      return "schema_unsupported";
  }
  return "unknown";
}

void FailErrno(const std::string& what, int errno_value) {
  throw Error(ErrorCode::kIo,
              fmt::format("{}: {}", what, std::generic_category().message(errno_value)));
}

}  // namespace mference
