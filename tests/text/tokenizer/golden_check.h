// Compares a tokenizer with a golden file in the format of tests/data/tokenizers. Shared by the
// unit tests and by the check against published vocabularies.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/tokenizer.h"

namespace mference {

struct GoldenResult {
  size_t encode_cases = 0;
  size_t decode_cases = 0;
  std::vector<std::string> failures;  // one line each: case, field, expected, got
};

GoldenResult CheckTokenizerGoldens(const Tokenizer& tokenizer, const Json& golden);

}  // namespace mference
