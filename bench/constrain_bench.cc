// What constrained decoding costs: building a vocabulary's trie, compiling schemas, masks.
//
//   constrain_bench TOKENIZER_JSON [--benchmark_...]
//
// Published vocabularies are not part of the repository, so one is named by the caller. A reply is
// made by a model that knows nothing (every allowed token is as likely as any other), the hardest
// case: it meets states that no sensible reply does. Only the masks are timed; `p50_us`, `p99_us`
// and `max_us` are over all masks of all replies.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "constrain/grammar_constraint.h"
#include "constrain/reply_grammar.h"

namespace mference {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kReplyTokens = 400;

struct Case {
  const char* name;
  const char* schema;
};

constexpr Case kCases[] = {
    {"json_object", R"({"type":"object"})"},
    {"free_string",
     R"({"type":"object","properties":{"text":{"type":"string"}},"required":["text"]})"},
    {"bounded_string",
     R"({"type":"object","properties":{"text":{"type":"string","minLength":40,"maxLength":120},
         "tags":{"type":"array","items":{"type":"string","maxLength":12}}},"required":["text","tags"]})"},
    {"records",
     R"({"type":"array","minItems":3,"items":{"type":"object","properties":{"id":{"type":"integer"},
         "name":{"type":"string"},"kind":{"enum":["alpha","beta","gamma"]},
         "score":{"type":"number","minimum":0,"maximum":1}},"required":["id","name","kind"]}})"},
    {"pattern",
     R"({"type":"array","items":{"type":"string","pattern":"^[A-Za-z0-9._-]+@[a-z0-9-]+\\.(com|org)$"}})"},
    {"tree",
     R"({"$defs":{"n":{"type":"object","properties":{"v":{"type":"string"},"kids":{"type":"array",
         "items":{"$ref":"#/$defs/n"}}},"required":["v","kids"]}},"$ref":"#/$defs/n"})"},
};

uint64_t NextRandom(uint64_t* state) {
  uint64_t z = (*state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// One of the mask's tokens; -1 if there is none.
TokenId Draw(std::span<const uint64_t> mask, uint64_t* random) {
  size_t count = 0;
  for (const uint64_t word : mask) count += static_cast<size_t>(std::popcount(word));
  if (count == 0) return -1;
  size_t choice = static_cast<size_t>(NextRandom(random) % count);
  for (size_t w = 0; w < mask.size(); ++w) {
    const auto here = static_cast<size_t>(std::popcount(mask[w]));
    if (choice >= here) {
      choice -= here;
      continue;
    }
    uint64_t word = mask[w];
    for (; choice > 0; --choice) word &= word - 1;
    return static_cast<TokenId>(w * 64 + static_cast<size_t>(std::countr_zero(word)));
  }
  return -1;
}

void BM_BuildTrie(benchmark::State& state, const Tokenizer& tokenizer) {
  size_t memory = 0;
  size_t nodes = 0;
  for (auto _ : state) {
    const TokenTrie trie(tokenizer, TextFamily::kGemma4);
    memory = trie.memory_bytes();
    nodes = trie.size();
  }
  state.counters["MiB"] = static_cast<double>(memory) / (1 << 20);
  state.counters["nodes"] = static_cast<double>(nodes);
}

void BM_Compile(benchmark::State& state, const char* schema) {
  ReplyGrammarOptions options;
  options.schema = OrderedJson::parse(schema);
  for (auto _ : state) benchmark::DoNotOptimize(CompileReplyGrammar(options));
}

void BM_Masks(benchmark::State& state, std::shared_ptr<const TokenTrie> trie, const char* schema) {
  ReplyGrammarOptions options;
  options.schema = OrderedJson::parse(schema);
  const auto grammar = CompileReplyGrammar(options);
  std::vector<double> micros;
  int64_t cached = 0;
  uint64_t random = 1;
  for (auto _ : state) {
    GrammarConstraint constraint(grammar, trie, {});
    double total = 0;
    int64_t masks = 0;
    for (int64_t left = kReplyTokens; left > 0 && !constraint.complete(); --left) {
      const Clock::time_point start = Clock::now();
      const std::span<const uint64_t> mask = constraint.Allowed(left);
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      total += seconds;
      micros.push_back(seconds * 1e6);
      ++masks;
      const TokenId id = Draw(mask, &random);
      if (id < 0) break;
      constraint.Accept(id);
    }
    cached += constraint.counters().cached;
    state.SetIterationTime(total / static_cast<double>(std::max<int64_t>(masks, 1)));
  }
  std::sort(micros.begin(), micros.end());
  if (micros.empty()) return;
  state.counters["p50_us"] = micros[micros.size() / 2];
  state.counters["p99_us"] = micros[micros.size() * 99 / 100];
  state.counters["max_us"] = micros.back();
  state.counters["cached_%"] =
      100.0 * static_cast<double>(cached) / static_cast<double>(micros.size());
}

int Run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 2) {
    std::fprintf(stderr, "usage: constrain_bench TOKENIZER_JSON [--benchmark_...]\n");
    return 2;
  }
  const Tokenizer tokenizer = Tokenizer::Load(argv[1], IdConflicts::kFollowReference);
  const auto trie = std::make_shared<const TokenTrie>(tokenizer, TextFamily::kGemma4);
  benchmark::RegisterBenchmark("build_trie", [&](benchmark::State& state) {
    BM_BuildTrie(state, tokenizer);
  })->Unit(benchmark::kMillisecond);
  for (const Case& entry : kCases) {
    benchmark::RegisterBenchmark((std::string("compile/") + entry.name).c_str(),
                                 [&](benchmark::State& state) { BM_Compile(state, entry.schema); })
        ->Unit(benchmark::kMicrosecond);
    benchmark::RegisterBenchmark(
        (std::string("mask/") + entry.name).c_str(),
        [&](benchmark::State& state) { BM_Masks(state, trie, entry.schema); })
        ->UseManualTime()
        ->Iterations(20)
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace mference

int main(int argc, char** argv) {
  try {
    return mference::Run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
