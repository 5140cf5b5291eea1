// Constrained replies of tiny models with random weights: the hardest case, since such a model
// knows nothing of JSON.
#include <gtest/gtest.h>

#include "constrain/reply_grammar.h"
#include "constrain/schema_corpus.h"
#include "constrain/schema_validator.h"
#include "engine/golden_model.h"
#include "engine/reply_stream.h"

namespace mference {
namespace {

using testing_support::GoldenPath;
using testing_support::InstalledSnapshot;

class ConstrainedGeneration : public ::testing::TestWithParam<const char*> {
 protected:
  static std::unique_ptr<LoadedModel> Load() {
    LoadOptions options;
    options.path = InstalledSnapshot(GoldenPath(GetParam()) / "snapshot");
    options.context = 256;
    return LoadedModel::Load(options);
  }

  struct Answer {
    GenerationResult result;
    Reply reply;
    bool well_formed = false;
  };
  static Answer Generate(LoadedModel& model, const ReplyGrammarOptions& options, uint64_t seed) {
    const auto constraint = model.text().MakeConstraint(CompileReplyGrammar(options));
    ReplyStreamOptions stream_options;
    stream_options.start = options.start;
    for (const ConstrainedTool& tool : options.tools) {
      stream_options.tools.push_back({tool.name, Json::parse(tool.parameters.dump())});
    }
    ReplyStream stream(model.text(), stream_options);
    std::vector<DialectEvent> events;
    const std::vector<int32_t> prompt = {5, 9, 11, 7};
    GenerationRequest request;
    request.prompt = prompt;
    request.sampling = {.temperature = 1, .top_k = 0, .top_p = 1, .seed = seed};
    request.max_new_tokens = 160;
    request.constraint = constraint.get();
    request.on_token = [&](int32_t id) { return stream.Push(id, &events); };
    Answer answer;
    answer.result = model.Generate(request);
    answer.well_formed = stream.Finish(answer.result.reason, &events);
    AppendEvents(events, &answer.reply);
    return answer;
  }
};

TEST_P(ConstrainedGeneration, EveryFinishedReplyValidates) {
  const auto model = Load();
  size_t finished = 0;
  size_t replies = 0;
  for (const OrderedJson& schema : testing_support::SchemaCorpus()) {
    ReplyGrammarOptions options;
    options.family = model->text().family();
    options.schema = schema;
#ifdef MFERENCE_SANITIZED
    if (++replies % 10 != 0) continue;
#else
    ++replies;
#endif
    const Answer answer = Generate(*model, options, replies);
    if (answer.result.reason == StopReason::kMaxTokens) continue;
    ++finished;
    ASSERT_TRUE(answer.well_formed);
    const OrderedJson value = OrderedJson::parse(answer.reply.content);
    EXPECT_TRUE(testing_support::IsValid(value, schema, schema)) << schema.dump() << "\n"
                                                                 << answer.reply.content;
  }
#ifndef MFERENCE_SANITIZED
  EXPECT_EQ(replies, 200u);
  EXPECT_GE(finished, 190u);  // at least 95 %
#endif
}

TEST_P(ConstrainedGeneration, ARequiredCallIsACall) {
  const auto model = Load();
  ReplyGrammarOptions options;
  options.family = model->text().family();
  options.calls = ReplyGrammarOptions::Calls::kRequired;
  options.parallel_calls = false;
  // No strings: the tiny Gemma tokenizer lacks the token around them.
  options.tools = {{"get_forecast", OrderedJson::parse(R"({"type":"object","properties":{
          "days":{"type":"integer","minimum":1,"maximum":14},"hourly":{"type":"boolean"},
          "hours":{"type":"array","items":{"type":"integer","minimum":0,"maximum":23}}},
          "required":["days"]})")},
                   {"stop", OrderedJson::parse(R"({"type":"object","properties":{}})")}};
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const Answer answer = Generate(*model, options, seed);
    EXPECT_EQ(answer.result.reason, StopReason::kConstraintMet);
    ASSERT_TRUE(answer.well_formed);
    ASSERT_EQ(answer.reply.calls.size(), 1u);
    const ToolCall& call = answer.reply.calls[0];
    const OrderedJson& schema = options.tools[call.name == "stop" ? 1 : 0].parameters;
    EXPECT_TRUE(testing_support::IsValid(OrderedJson::parse(call.arguments), schema, schema))
        << call.name << call.arguments;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ConstrainedGeneration,
                         ::testing::Values("gemma4", "qwen3_5_moe"));

}  // namespace
}  // namespace mference
