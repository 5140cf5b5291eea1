#include "server/api/generation_fields.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <random>

#include "text/template/python_text.h"

namespace mference::server {
namespace {

using jinja::Value;

constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 1024;
constexpr size_t kMaxBiases = 1024;
constexpr int64_t kMaxTopK = 256;

// Of this API and of other servers'.
constexpr std::string_view kUnsupported[] = {"functions",
                                             "function_call",
                                             "audio",
                                             "prediction",
                                             "web_search_options",
                                             "suffix",
                                             "echo",
                                             "grammar",
                                             "guided_json",
                                             "guided_regex",
                                             "guided_choice",
                                             "guided_grammar",
                                             "structured_outputs",
                                             "json_schema",
                                             "chat_template",
                                             "continue_final_message",
                                             "ignore_eos",
                                             "min_tokens",
                                             "stop_token_ids",
                                             "bad_words",
                                             "allowed_token_ids",
                                             "use_beam_search",
                                             "length_penalty",
                                             "mirostat",
                                             "typical_p",
                                             "tfs_z",
                                             "xtc_probability",
                                             "dry_multiplier",
                                             "dynatemp_range",
                                             "repeat_penalty",
                                             "samplers"};

}  // namespace

bool IsNeutral(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kBool:
      return !value.boolean();
    case Value::Kind::kInt:
    case Value::Kind::kFloat:
      return FiniteNumber(value) == 0.0;
    case Value::Kind::kString:
      return value.text().empty();
    case Value::Kind::kList:
      return value.items().empty();
    case Value::Kind::kDict:
      return value.dict().empty();
    default:
      return true;
  }
}

namespace {

uint64_t RandomSeed() {
  static thread_local std::random_device entropy;
  return ((uint64_t{entropy()} << 32) | entropy()) | 1;
}

// Unsigned 64-bit; a negative number stands for its two's complement.
uint64_t ReadSeed(RequestFields& fields) {
  const Value* seed = fields.Find("seed");
  if (seed == nullptr) return RandomSeed();
  if (seed->IsSmallInt()) return static_cast<uint64_t>(seed->small_int());
  if (seed->IsInt()) {
    const std::string digits = jinja::ToJson(*seed, {}).text();
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error == std::errc() && end == digits.data() + digits.size()) return value;
  }
  fields.FailType("seed", "a 64-bit integer");
}

std::vector<std::string> ReadStops(RequestFields& fields) {
  const Value* stop = fields.Find("stop");
  if (stop == nullptr) return {};
  std::vector<std::string> stops;
  const auto add = [&](const Value& value) {
    if (!value.IsString()) fields.FailType("stop", "a string or an array of strings");
    if (value.text().size() > kMaxStopBytes) {
      fields.Refuse("invalid_value", "stop", "a stop string has more than {} bytes", kMaxStopBytes);
    }
    if (!value.text().empty()) stops.push_back(value.text());
  };
  if (stop->IsList()) {
    for (const Value& item : stop->items()) add(item);
  } else {
    add(*stop);
  }
  if (stops.size() > kMaxStops) {
    fields.Refuse("invalid_value", "stop", "there are more than {} stop strings", kMaxStops);
  }
  return stops;
}

std::vector<LogitBias> ReadBiases(RequestFields& fields, const ServedModel& model) {
  const Value* biases = fields.Find("logit_bias");
  if (biases == nullptr) return {};
  if (!biases->IsDict()) fields.FailType("logit_bias", "an object");
  if (biases->dict().size() > kMaxBiases) {
    fields.Refuse("invalid_value", "logit_bias", "there are more than {} biases", kMaxBiases);
  }
  std::vector<LogitBias> out;
  for (const auto& [key, value] : biases->dict().entries()) {
    const std::string& name = key.text();
    LogitBias bias;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), bias.id);
    if (error != std::errc() || end != name.data() + name.size() || bias.id < 0 ||
        bias.id >= model.vocab_size) {
      fields.Refuse("invalid_value", "logit_bias", "'{}' is not a token id below {}",
                    name.substr(0, 40), model.vocab_size);
    }
    const std::optional<double> number = FiniteNumber(value);
    if (!number) fields.FailType("logit_bias", "an object of numbers");
    if (*number < -100 || *number > 100) {
      fields.Refuse("invalid_value", "logit_bias",
                    "the bias of token {} must be between -100 and "
                    "100",
                    bias.id);
    }
    bias.bias = static_cast<float>(*number);
    out.push_back(bias);
  }
  return out;
}

// Sets `target` from a number in a range.
void ReadRange(RequestFields& fields, const char* name, double least, double most, float* target) {
  const std::optional<double> number = fields.Number(name);
  if (!number) return;
  if (*number < least || *number > most) {
    fields.Refuse("invalid_value", name, "{} must be from {} to {}", fields.PathOf(name), least,
                  most);
  }
  *target = static_cast<float>(*number);
}

void ReadTopK(RequestFields& fields, SamplingParams* sampling) {
  const std::optional<int64_t> top_k = fields.Integer("top_k");
  if (!top_k) return;
  if (*top_k < -1 || *top_k > kMaxTopK) {
    fields.Refuse("invalid_value", "top_k", "top_k must be from 1 to {}, or 0 or -1 for off",
                  kMaxTopK);
  }
  sampling->top_k = static_cast<int32_t>(std::max<int64_t>(*top_k, 0));
}

// `max_completion_tokens` wins over the older `max_tokens`.
void ReadTokenLimit(RequestFields& fields, int64_t default_max_tokens, GenerationFields* out) {
  const std::optional<int64_t> newer = fields.Integer("max_completion_tokens");
  const std::optional<int64_t> older = fields.Integer("max_tokens");
  const char* name = newer ? "max_completion_tokens" : "max_tokens";
  const std::optional<int64_t> limit = newer ? newer : older;
  out->max_tokens = limit.value_or(default_max_tokens);
  if (out->max_tokens == -1) {
    out->max_tokens = std::numeric_limits<int64_t>::max();
  } else if (out->max_tokens <= 0) {
    fields.Refuse("invalid_value", name, "{} must be positive, or -1 for as much as fits", name);
  }
}

}  // namespace

void CheckModel(RequestFields& fields, const ServedModel& model) {
  const std::optional<std::string> id = fields.Text("model");
  if (!id) throw ApiError(400, "invalid_json", "model is missing", "model");
  if (*id != model.id) {
    throw ApiError(404, "model_not_found",
                   fmt::format("the model '{}' does not exist here; this server has '{}'",
                               id->substr(0, 100), model.id),
                   "model");
  }
  if (const std::optional<int64_t> n = fields.Integer("n"); n.value_or(1) != 1) {
    fields.Refuse("unsupported_value", "n", "only one choice per request is supported");
  }
  if (fields.Integer("best_of").value_or(1) != 1) {
    fields.Refuse("unsupported_value", "best_of", "only one choice per request is supported");
  }
}

void RefuseUnsupported(RequestFields& fields) {
  for (const std::string_view name : kUnsupported) {
    const Value* value = fields.Find(name);
    if (value == nullptr || IsNeutral(*value)) continue;
    const bool deprecated = name == "functions" || name == "function_call";
    fields.Refuse("unsupported_value", name, "{} is not supported{}", name,
                  deprecated                 ? "; use tools and tool_choice"
                  : name == "repeat_penalty" ? "; use repetition_penalty"
                                             : "");
  }
  if (!fields.Bool("add_generation_prompt").value_or(true)) {
    fields.Refuse("unsupported_value", "add_generation_prompt",
                  "the model always answers: add_generation_prompt cannot be false");
  }
  if (fields.Find("enable_thinking") != nullptr) {
    fields.Refuse("unsupported_value", "enable_thinking",
                  "enable_thinking is not supported here; use reasoning_effort or "
                  "chat_template_kwargs.enable_thinking");
  }
  const Value* modalities = fields.Find("modalities");
  if (modalities == nullptr) return;
  const bool text_only = modalities->IsList() && modalities->items().size() == 1 &&
                         modalities->items()[0].IsString() &&
                         modalities->items()[0].text() == "text";
  if (!text_only) fields.Refuse("unsupported_value", "modalities", "only text is supported");
}

void ReadPenalties(RequestFields& fields, GenerationFields* out) {
  ReadRange(fields, "presence_penalty", -2, 2, &out->sampling.presence_penalty);
  ReadRange(fields, "frequency_penalty", -2, 2, &out->sampling.frequency_penalty);
}

void ReadSampling(RequestFields& fields, const ServedModel& model, int64_t default_max_tokens,
                  GenerationFields* out) {
  SamplingParams& sampling = out->sampling;
  ReadRange(fields, "temperature", 0, 2, &sampling.temperature);
  ReadRange(fields, "top_p", 0, 1, &sampling.top_p);
  if (sampling.top_p <= 0) {
    fields.Refuse("invalid_value", "top_p", "top_p must be above 0 and up to 1");
  }
  ReadTopK(fields, &sampling);
  ReadRange(fields, "min_p", 0, 1, &sampling.min_p);
  ReadRange(fields, "repetition_penalty", 0, 1e6, &sampling.repetition_penalty);
  if (sampling.repetition_penalty <= 0) {
    fields.Refuse("invalid_value", "repetition_penalty", "repetition_penalty must be positive");
  }
  if (const std::optional<int64_t> last = fields.Integer("repeat_last_n")) {
    if (*last < 0 || *last > INT32_MAX) {
      fields.Refuse("invalid_value", "repeat_last_n", "repeat_last_n must not be negative");
    }
    sampling.repeat_last_n = static_cast<int32_t>(*last);
  }
  sampling.logit_bias = ReadBiases(fields, model);
  sampling.seed = ReadSeed(fields);
  ReadTokenLimit(fields, default_max_tokens, out);
  out->stops = ReadStops(fields);
}

void ReadStreaming(RequestFields& fields, GenerationFields* out) {
  out->stream = fields.Bool("stream").value_or(false);
  if (std::optional<RequestFields> options = fields.Object("stream_options")) {
    out->include_usage = options->Bool("include_usage").value_or(false);
    options->Find("include_obfuscation");  // padding, which is never sent
    options->AddUnasked(&out->ignored);
  }
}

}  // namespace mference::server
