// Every golden reply, at every split that its file gives, cut at every byte, and cut once at each
// byte: the result and the joined events are the same each time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "base/file.h"
#include "text/dialects/parse_command.h"

namespace mference {
namespace {

struct Family {
  const char* name;
  TextFamily family;
};

Json LoadGoldens(const char* name) {
  const std::string path = std::string(MFERENCE_TEST_DATA) + "/dialects/" + name + ".json";
  return ParseJson(ReadTextFile(path, uint64_t{4} << 20), path, ErrorCode::kInvalidArgument);
}

// The parts that a golden fixes, arguments as JSON values.
Json Canonical(const Json& answer) {
  if (answer.contains("error")) {
    const Json& error = answer["error"];
    return {{"error", error.is_object() ? error["class"] : error}};
  }
  Json result;
  for (const char* key : {"content", "reasoning", "finish_reason", "dropped"}) {
    if (answer.contains(key)) result[key] = answer[key];
  }
  result["tool_calls"] = Json::array();
  for (const Json& call : answer["tool_calls"]) {
    result["tool_calls"].push_back(
        {{"name", call["name"]}, {"arguments", Json::parse(call["arguments"].get<std::string>())}});
  }
  return result;
}

// The deltas with neighbours of one kind joined, and what followed them.
std::string JoinedEvents(const Json& answer) {
  std::vector<std::pair<std::string, std::string>> joined;
  for (const Json& delta : answer["events"]) {
    std::string kind = delta.begin().key();
    std::string text;
    if (kind == "tool_calls") {
      const Json& call = delta["tool_calls"][0];
      kind += call["index"].dump();
      text = call["function"]["arguments"].get<std::string>();
      if (call["function"].contains("name")) {
        kind += call["function"]["name"].get<std::string>();
        joined.emplace_back(kind, text);
        continue;
      }
    } else {
      text = delta[kind].get<std::string>();
    }
    if (!joined.empty() && joined.back().first == kind) {
      joined.back().second += text;
    } else {
      joined.emplace_back(kind, text);
    }
  }
  Json rest = answer;
  rest.erase("events");
  std::string all = rest.dump();
  for (const auto& [kind, text] : joined) all += "\n" + kind + ": " + text;
  return all;
}

std::vector<std::vector<size_t>> Splits(const Json& golden) {
  size_t bytes = 0;
  bool repeats = false;
  for (const Json& item : golden["items"]) {
    if (item.is_string()) bytes += item.get_ref<const std::string&>().size();
    repeats |= item.contains("repeat");
  }
  std::vector<std::vector<size_t>> splits = {{}};
  if (golden.contains("splits")) {
    for (const Json& split : golden["splits"]) splits.push_back(split.get<std::vector<size_t>>());
  }
  if (repeats) bytes = 2000;  // of a long text, its head byte by byte
  std::vector<size_t> every(bytes);
  std::iota(every.begin(), every.end(), 0);
  splits.push_back(every);
  if (!repeats) {
    for (size_t at = 1; at < bytes; ++at) splits.push_back({at});
  }
  return splits;
}

// The candidate that we give where the goldens leave a choice.
const std::map<std::string, size_t> kChoices = {
    {"gemma4-023", 0},       // any spelling of decimals: ours is the model's
    {"gemma4-043", 0},       // a raw newline in a JSON string is an error
    {"qwen36-030", 0},       // a value of another type than declared is passed on
    {"qwen36-031", 0},       // so is a quoted string
    {"qwen36-070", 0},       // the newlines around </think> belong to neither side
    {"qwen36-075", 0},       // a stray </think> is dropped
    {"deepseek_v4-041", 0},  // nested parameters become an object
    {"deepseek_v4-042", 0},  // the last of two equal parameters counts
    {"deepseek_v4-045", 1},  // complete invokes of an open block are delivered
    {"deepseek_v4-047", 0},  // a second block adds its calls
    {"inkling-043", 0},      // text without any marker is content
    {"inkling-053", 1},      // a kind marker inside a section is malformed
    {"inkling-058", 0},      // the last of two equal keys counts
    {"maple-054", 0},        // as qwen36-070
    {"maple-055", 0},
};

class DialectGoldenTest : public testing::TestWithParam<Family> {};

TEST_P(DialectGoldenTest, EveryCaseAtEverySplit) {
  const Json goldens = LoadGoldens(GetParam().name);
  for (const Json& golden : goldens["cases"]) {
    const std::string id = golden["id"].get<std::string>();
    SCOPED_TRACE(id + ": " + golden["name"].get<std::string>());
    Json expected;
    if (golden.contains("expected")) {
      expected = golden["expected"];
    } else {
      ASSERT_TRUE(kChoices.contains(id)) << "an open case without a written choice";
      expected = golden["candidates"].at(kChoices.at(id));
    }
    for (const bool stream : {false, true}) {
      Json request = golden;
      request["stream_arguments"] = stream;
      std::string first;
      for (const auto& split : Splits(golden)) {
        request["split"] = split;
        const Json answer = ParseRecordedReply(GetParam().family, request);
        ASSERT_EQ(Canonical(answer), Canonical(expected)) << Json(split).dump();
        const std::string events = JoinedEvents(answer);
        if (first.empty()) first = events;
        ASSERT_EQ(events, first) << Json(split).dump();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, DialectGoldenTest,
                         testing::Values(Family{"gemma4", TextFamily::kGemma4},
                                         Family{"qwen36", TextFamily::kQwen36},
                                         Family{"deepseek_v4", TextFamily::kDeepseekV4},
                                         Family{"inkling", TextFamily::kInkling},
                                         Family{"maple", TextFamily::kMaple}),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace mference
