// tokenizer_goldens_check TOKENIZER_JSON GOLDEN_JSON
//
// Compares a published vocabulary with its golden encodings and says how long loading took. Exit
// status: 0 all equal, 1 differences (each is printed), 2 a file that cannot be read.
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <exception>

#include "base/file.h"
#include "text/tokenizer/golden_check.h"

namespace mference {
namespace {

int Run(const char* tokenizer_path, const char* golden_path) {
  constexpr uint64_t kMaxGoldenBytes = uint64_t{16} << 20;
  const Json golden = ParseJson(ReadTextFile(golden_path, kMaxGoldenBytes), golden_path,
                                ErrorCode::kInvalidArgument);
  const auto start = std::chrono::steady_clock::now();
  const Tokenizer tokenizer = Tokenizer::Load(tokenizer_path, IdConflicts::kFollowReference);
  const std::chrono::duration<double, std::milli> load = std::chrono::steady_clock::now() - start;
  const GoldenResult result = CheckTokenizerGoldens(tokenizer, golden);
  for (const std::string& failure : result.failures) fmt::print("{}\n", failure);
  fmt::print(
      "{} tokens, loaded in {:.0f} ms, {:.1f} MiB; {} encode and {} decode cases, {} "
      "differences\n",
      tokenizer.vocab_size(), load.count(),
      static_cast<double>(tokenizer.memory_bytes()) / (1 << 20), result.encode_cases,
      result.decode_cases, result.failures.size());
  return result.failures.empty() ? 0 : 1;
}

}  // namespace
}  // namespace mference

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: {} TOKENIZER_JSON GOLDEN_JSON\n", argv[0]);
    return 2;
  }
  try {
    return mference::Run(argv[1], argv[2]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
