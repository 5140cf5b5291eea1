// Speed of loading a vocabulary, encoding and decoding.
//
//   tokenizer_bench TOKENIZER_JSON TEXT_FILE [--benchmark_...]
//
// Published vocabularies and a text of the kind of interest (a few megabytes of prose) are not part
// of the repository, so both are named by the caller. Loading also reports the memory that the
// tables hold and the most that the process held meanwhile.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <string>

#include "base/file.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace mference {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{256} << 20;

double Mebibytes(size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// Peak resident memory of the process since the last reset, in bytes (Linux: VmHWM).
size_t PeakResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) << 10;
  }
  return 0;
}

void ResetPeakResident() { std::ofstream("/proc/self/clear_refs") << '5'; }

void BM_Load(benchmark::State& state, const std::string& path) {
  malloc_trim(0);
  ResetPeakResident();
  const size_t before = PeakResidentBytes();
  size_t memory = 0;
  for (auto _ : state) memory = Tokenizer::Load(path, IdConflicts::kFollowReference).memory_bytes();
  state.counters["tables_MiB"] = Mebibytes(memory);
  state.counters["peak_MiB"] = Mebibytes(PeakResidentBytes() - before);
}

void BM_Encode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text,
               SpecialParsing parsing) {
  size_t tokens = 0;
  for (auto _ : state) tokens = tokenizer.Encode(text, parsing).size();
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["bytes_per_token"] =
      static_cast<double>(text.size()) / static_cast<double>(tokens);
}

// The first text that a tokenizer sees: no word is in its cache yet.
void BM_EncodeFirst(benchmark::State& state, const std::string& path, const std::string& text) {
  for (auto _ : state) {
    state.PauseTiming();
    const Tokenizer tokenizer = Tokenizer::Load(path, IdConflicts::kFollowReference);
    state.ResumeTiming();
    benchmark::DoNotOptimize(tokenizer.Encode(text, SpecialParsing::kNone).size());
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}

void BM_Decode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<TokenId> ids = tokenizer.Encode(text, SpecialParsing::kNone);
  for (auto _ : state) {
    Detokenizer detokenizer(tokenizer, /*skip_special=*/true);
    size_t bytes = 0;
    for (const TokenId id : ids) bytes += detokenizer.Push(id).size();
    benchmark::DoNotOptimize(bytes);
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * ids.size()));
}

void Register(const std::string& path, const Tokenizer& tokenizer, const std::string& text) {
  static const std::string kSpaces(1'000'000, ' ');
  static const std::string kLetters(1'000'000, 'a');
  benchmark::RegisterBenchmark("load", BM_Load, path)->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("encode/first", BM_EncodeFirst, path, text)
      ->Unit(benchmark::kMillisecond);
  const auto encode = [&](const char* name, const std::string& input, SpecialParsing parsing) {
    benchmark::RegisterBenchmark(name, [&tokenizer, &input, parsing](benchmark::State& state) {
      BM_Encode(state, tokenizer, input, parsing);
    })->Unit(benchmark::kMillisecond);
  };
  encode("encode/plain", text, SpecialParsing::kNone);
  encode("encode/all", text, SpecialParsing::kAll);
  encode("encode/million_spaces", kSpaces, SpecialParsing::kNone);
  encode("encode/million_a", kLetters, SpecialParsing::kNone);
  benchmark::RegisterBenchmark("decode", [&tokenizer, &text](benchmark::State& state) {
    BM_Decode(state, tokenizer, text);
  })->Unit(benchmark::kMillisecond);
}

}  // namespace
}  // namespace mference

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s TOKENIZER_JSON TEXT_FILE [--benchmark_...]\n", argv[0]);
    return 2;
  }
  try {
    using mference::Tokenizer;
    const Tokenizer tokenizer = Tokenizer::Load(argv[1], mference::IdConflicts::kFollowReference);
    const std::string text = mference::ReadTextFile(argv[2], mference::kMaxTextBytes);
    mference::Register(argv[1], tokenizer, text);
    benchmark::RunSpecifiedBenchmarks();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
