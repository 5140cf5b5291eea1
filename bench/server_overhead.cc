// What the server costs: time to first token and decode speed of a request over HTTP, beside the
// same work as `mference bench` does it, in turns on one loaded model.
//
//   server_overhead MODEL.gturbo [--memory SIZE] [--context N] [--prompt N] [--decode N]
//                   [--rounds N] [--threads N]
//
// Every request has a prompt of its own, of tokens drawn evenly from the vocabulary, and is the
// only one at a time. Figures are medians of all rounds; a round that warms up is left out.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

#include "base/units.h"
#include "bench/speed.h"
#include "engine/loaded_model.h"
#include "server/http_client.h"
#include "server/server.h"

namespace mference {
namespace {

using Clock = std::chrono::steady_clock;
using testing_support::HttpClient;

struct Arguments {
  LoadOptions load;
  int64_t prompt = 512;
  int64_t decode = 64;
  int rounds = 5;
};

struct Figures {
  double first_token_seconds = 0;
  double tokens_per_second = 0;
};

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

Arguments ParseArguments(std::span<char*> words) {
  Arguments arguments;
  arguments.load.context = 4096;
  arguments.load.prompt_cache.memory = PromptCacheOptions::Memory::kAuto;
  if (words.empty()) Fail(ErrorCode::kInvalidArgument, "expected the path of a model");
  arguments.load.path = words[0];
  for (size_t i = 1; i < words.size(); i += 2) {
    const std::string_view name = words[i];
    if (i + 1 == words.size()) Fail(ErrorCode::kInvalidArgument, "missing value for {}", name);
    const std::string value = words[i + 1];
    if (name == "--memory") {
      arguments.load.memory_budget_bytes = ParseByteCount(value);
    } else if (name == "--context") {
      arguments.load.context = std::stoll(value);
    } else if (name == "--prompt") {
      arguments.prompt = std::stoll(value);
    } else if (name == "--decode") {
      arguments.decode = std::stoll(value);
    } else if (name == "--rounds") {
      arguments.rounds = std::stoi(value);
    } else if (name == "--threads") {
      arguments.load.threads = std::stoi(value);
    } else {
      Fail(ErrorCode::kInvalidArgument, "unknown flag: {}", name);
    }
  }
  return arguments;
}

Figures RunEngine(LoadedModel& model, const Arguments& arguments, uint64_t seed) {
  bench::SpeedOptions options;
  options.prefill_tokens = {arguments.prompt};
  options.decode_tokens = arguments.decode;
  options.decode_prompt = arguments.prompt;
  options.runs = 1;
  options.seed = seed;
  options.warm_up = false;
  const std::vector<bench::Phase> phases = bench::MeasureSpeed(model, options);
  return {phases.at(0).samples.at(0).seconds, phases.at(1).Rate()};
}

std::vector<int32_t> RandomPrompt(const LoadedModel& model, int64_t tokens, uint64_t seed) {
  std::mt19937_64 random(seed);
  const int32_t limit = model.text().tokenizer().id_limit();
  std::vector<int32_t> prompt(static_cast<size_t>(tokens));
  for (int32_t& id : prompt) id = static_cast<int32_t>(random() % static_cast<uint64_t>(limit));
  return prompt;
}

Figures RunServer(LoadedModel& model, const Arguments& arguments, uint64_t seed) {
  Json ends = Json::object();
  const StopTokens& stops = model.text().stops();
  for (const auto* ids : {&stops.end_of_sequence, &stops.end_of_turn, &stops.tool_response}) {
    for (const int32_t id : *ids) ends[std::to_string(id)] = -100;
  }
  const Json body = {{"model", "bench"},
                     {"prompt", RandomPrompt(model, arguments.prompt, seed)},
                     {"max_tokens", arguments.decode},
                     {"temperature", 1},
                     {"top_k", 64},
                     {"top_p", 1},
                     {"seed", seed},
                     {"logit_bias", ends},
                     {"stream", true},
                     {"stream_options", {{"include_usage", true}}}};
  model.session().Reset();
  server::ServerOptions options;
  options.port = 0;
  options.model_id = "bench";
  options.log = [](std::string_view) {};
  server::Server server(model, options);
  HttpClient client(server.port());
  const Clock::time_point start = Clock::now();
  client.Send(testing_support::FormatPost("/v1/completions", body.dump()));
  const std::string head = client.ReadUntil("data: ", std::chrono::minutes(30));
  const Clock::time_point first = Clock::now();
  const std::string all = client.ReadUntil("data: [DONE]", std::chrono::minutes(30));
  const Clock::time_point last = Clock::now();
  if (all.find(fmt::format("\"completion_tokens\":{}", arguments.decode)) == std::string::npos) {
    Fail(ErrorCode::kInternal, "the request failed: {}", all.substr(0, 2000));
  }
  return {Seconds(first - start),
          static_cast<double>(arguments.decode - 1) / Seconds(last - first)};
}

double Median(std::vector<Figures> all, double Figures::*member) {
  std::sort(all.begin(), all.end(),
            [member](const Figures& a, const Figures& b) { return a.*member < b.*member; });
  const size_t middle = all.size() / 2;
  return all.size() % 2 == 1 ? all[middle].*member
                             : (all[middle - 1].*member + all[middle].*member) / 2;
}

void Run(const Arguments& arguments) {
  const std::unique_ptr<LoadedModel> model = LoadedModel::Load(arguments.load);
  model->FinishLoading();
  std::vector<Figures> engine;
  std::vector<Figures> server;
  fmt::print("{:8} {:>14} {:>14} {:>14} {:>14}\n", "", "engine ttft", "server ttft", "engine tok/s",
             "server tok/s");
  const auto print = [](const std::string& name, const Figures& a, const Figures& b) {
    fmt::print("{:8} {:14.4f} {:14.4f} {:14.2f} {:14.2f}\n", name, a.first_token_seconds,
               b.first_token_seconds, a.tokens_per_second, b.tokens_per_second);
    std::fflush(stdout);
  };
  for (int round = -1; round < arguments.rounds; ++round) {
    const auto seed = static_cast<uint64_t>(round + 2);
    const Figures a = RunEngine(*model, arguments, seed);
    const Figures b = RunServer(*model, arguments, seed);
    print(round < 0 ? "warm-up" : fmt::format("round {}", round + 1), a, b);
    if (round < 0) continue;
    engine.push_back(a);
    server.push_back(b);
  }
  const Figures a = {Median(engine, &Figures::first_token_seconds),
                     Median(engine, &Figures::tokens_per_second)};
  const Figures b = {Median(server, &Figures::first_token_seconds),
                     Median(server, &Figures::tokens_per_second)};
  print("median", a, b);
  fmt::print("overhead: first token {:+.1f}%, decoding {:+.1f}%\n",
             100 * (b.first_token_seconds / a.first_token_seconds - 1),
             100 * (a.tokens_per_second / b.tokens_per_second - 1));
}

}  // namespace
}  // namespace mference

int main(int argc, char** argv) {
  try {
    mference::Run(mference::ParseArguments(std::span(argv + 1, argv + argc)));
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
