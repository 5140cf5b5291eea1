#include "engine/text_layer.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/units.h"

namespace mference {
namespace {

constexpr uint64_t kMaxGenerationConfigBytes = 64 * kKiB;
constexpr uint64_t kMaxTemplateBytes = 4 * kMiB;

// Facts about a family's special tokens, by their spelling in tokenizer.json.
struct FamilyTokens {
  TextFamily text;
  Family family;
  const char* bos;  // prompts begin with it; nullptr: none
  const char* end_of_turn;
  const char* tool_response;  // ends a reply that waits for its tools; nullptr: none
  std::array<const char*, 3> turn_starts;
};

constexpr FamilyTokens kFamilies[] = {
    {TextFamily::kGemma4, Family::kGemma4, "<bos>", "<turn|>", "<|tool_response>", {"<|turn>"}},
    {TextFamily::kQwen36, Family::kQwen36, nullptr, "<|im_end|>", nullptr, {"<|im_start|>"}},
    {TextFamily::kDeepseekV4,
     Family::kDeepseekV4Flash,
     "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>",
     "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
     nullptr,
     {"<\uFF5CUser\uFF5C>", "<\uFF5CAssistant\uFF5C>"}},
    {TextFamily::kInkling,
     Family::kInklingSmall,
     nullptr,
     "<|content_model_end_sampling|>",
     nullptr,
     {"<|message_system|>", "<|message_user|>", "<|message_model|>"}},
    {TextFamily::kMaple, Family::kMaple, nullptr, "<|im_end|>", nullptr, {"<|im_start|>"}},
};

const FamilyTokens& TokensOf(TextFamily family) {
  return *std::find_if(std::begin(kFamilies), std::end(kFamilies),
                       [family](const FamilyTokens& entry) { return entry.text == family; });
}

// `eos_token_id` is a number or a list of them.
void AppendEosIds(const JsonReader& config, std::vector<int32_t>& ids) {
  if (!config.Has("eos_token_id")) return;
  const JsonReader eos = config.At("eos_token_id");
  const std::vector<int64_t> values =
      eos.value().is_array() ? eos.IntArray() : std::vector<int64_t>{eos.Int()};
  for (const int64_t id : values) {
    if (id < 0 || id > INT32_MAX) eos.FailHere("expected token ids");
    ids.push_back(static_cast<int32_t>(id));
  }
}

StopTokens MakeStops(const FamilyTokens& family, const Tokenizer& tokenizer,
                     const std::vector<int32_t>& eos) {
  const auto id_of = [&tokenizer](const char* token) -> std::optional<TokenId> {
    if (token == nullptr) return std::nullopt;
    return tokenizer.TokenToId(token);
  };
  const std::optional<TokenId> end_of_turn = id_of(family.end_of_turn);
  const std::optional<TokenId> tool_response = id_of(family.tool_response);
  StopTokens stops;
  if (end_of_turn) stops.end_of_turn.push_back(*end_of_turn);
  for (const int32_t id : eos) {
    if (id == end_of_turn) continue;
    (id == tool_response ? stops.tool_response : stops.end_of_sequence).push_back(id);
  }
  return stops;
}

}  // namespace

TextFamily TextFamilyOf(Family family) {
  for (const FamilyTokens& entry : kFamilies) {
    if (entry.family == family) return entry.text;
  }
  Fail(ErrorCode::kUnknownFamily, "models of the family {} have no chat framing here",
       FamilyName(family));
}

std::string_view BosSpelling(TextFamily family) {
  const char* bos = TokensOf(family).bos;
  return bos == nullptr ? std::string_view() : std::string_view(bos);
}

std::optional<std::string> ReadChatTemplate(const ModelDirectory& directory) {
  if (directory.HasSidecar("chat_template.jinja")) {
    return directory.ReadSidecar("chat_template.jinja", kMaxTemplateBytes);
  }
  if (!directory.HasSidecar("chat_template.json")) return std::nullopt;
  const std::string name = (directory.path() / kTokenizerDirectory / "chat_template.json").string();
  const Json document = ParseJson(directory.ReadSidecar("chat_template.json", kMaxTemplateBytes),
                                  name, ErrorCode::kTemplateInvalid);
  return JsonReader(document, name, ErrorCode::kTemplateInvalid).At("chat_template").String();
}

SamplingParams SamplingDefaults(const JsonReader& config) {
  SamplingParams params;
  if (config.Has("temperature"))
    params.temperature = static_cast<float>(config.At("temperature").Double());
  if (config.Has("top_p")) params.top_p = static_cast<float>(config.At("top_p").Double());
  if (config.Has("top_k")) params.top_k = static_cast<int32_t>(config.At("top_k").Int());
  if (config.Has("min_p")) params.min_p = static_cast<float>(config.At("min_p").Double());
  if (config.Has("repetition_penalty")) {
    params.repetition_penalty = static_cast<float>(config.At("repetition_penalty").Double());
  }
  if (config.Has("do_sample") && !config.At("do_sample").Bool()) params.temperature = 0;
  params.Validate();
  return params;
}

TextLayer TextLayer::Load(const ModelDirectory& directory, const JsonReader& config) {
  const TextFamily family = TextFamilyOf(directory.manifest().arch.family);
  const FamilyTokens& tokens = TokensOf(family);
  const std::string root = directory.path().string() + "/tokenizer/";
  Tokenizer tokenizer = Tokenizer::FromJson(
      directory.ReadSidecar("tokenizer.json", Tokenizer::kMaxFileBytes), root + "tokenizer.json");

  const std::string source = ReadChatTemplate(directory).value_or("");
  // A BOS that the vocabulary lacks (small test models) is no BOS.
  const bool has_bos = tokens.bos != nullptr && tokenizer.TokenToId(tokens.bos).has_value();
  PromptRenderer renderer =
      PromptRenderer::Load(family, source, has_bos ? tokens.bos : std::string());

  TextLayer layer(family, std::move(tokenizer), std::move(renderer));
  if (has_bos) layer.bos_ = layer.tokenizer_.TokenToId(tokens.bos);
  std::vector<int32_t> eos;
  AppendEosIds(config, eos);
  if (config.Has("text_config")) AppendEosIds(config.At("text_config"), eos);
  if (directory.HasSidecar("generation_config.json")) {
    const std::string name = root + "generation_config.json";
    const Json document =
        ParseJson(directory.ReadSidecar("generation_config.json", kMaxGenerationConfigBytes), name,
                  ErrorCode::kInvalidArgument);
    const JsonReader reader(document, name, ErrorCode::kInvalidArgument);
    AppendEosIds(reader, eos);
    layer.sampling_defaults_ = SamplingDefaults(reader);
  }
  std::sort(eos.begin(), eos.end());
  eos.erase(std::unique(eos.begin(), eos.end()), eos.end());
  layer.stops_ = MakeStops(tokens, layer.tokenizer_, eos);
  for (const char* spelling : tokens.turn_starts) {
    if (spelling == nullptr) continue;
    if (const auto id = layer.tokenizer_.TokenToId(spelling)) layer.turn_starts_.push_back(*id);
  }
  for (const MarkerSpelling& entry : DialectMarkers(family)) {
    const std::optional<TokenId> id = layer.tokenizer_.TokenToId(entry.spelling);
    if (id && layer.tokenizer_.IsAdded(*id)) layer.markers_.emplace_back(*id, entry.marker);
  }
  return layer;
}

std::vector<TokenId> TextLayer::EncodeRaw(std::string_view text) const {
  std::vector<TokenId> ids = tokenizer_.Encode(text, SpecialParsing::kAll);
  if (bos_ && (ids.empty() || ids.front() != *bos_)) ids.insert(ids.begin(), *bos_);
  return ids;
}

std::vector<TokenId> TextLayer::EncodePrompt(const Prompt& prompt) const {
  std::vector<TextSpan> spans;
  spans.reserve(prompt.spans.size());
  for (const PromptSpan& span : prompt.spans) {
    spans.push_back(
        {std::string_view(prompt.text).substr(span.begin, span.end - span.begin), span.trusted});
  }
  return tokenizer_.Encode(spans);
}

std::shared_ptr<const TokenTrie> TextLayer::token_trie() const {
  std::call_once(trie_->once,
                 [this] { trie_->trie = std::make_shared<const TokenTrie>(tokenizer_, family_); });
  return trie_->trie;
}

std::unique_ptr<GrammarConstraint> TextLayer::MakeConstraint(
    std::shared_ptr<const Grammar> grammar) const {
  std::vector<TokenId> ends = stops_.end_of_sequence;
  ends.insert(ends.end(), stops_.end_of_turn.begin(), stops_.end_of_turn.end());
  return std::make_unique<GrammarConstraint>(std::move(grammar), token_trie(), std::move(ends));
}

std::optional<ReasoningTokens> TextLayer::reasoning_tokens() const {
  const ReasoningMarkers markers = ReasoningMarkersOf(family_);
  ReasoningTokens tokens;
  for (const auto& [id, marker] : markers_) {
    if (marker == markers.open) tokens.open = id;
    if (marker == markers.close) tokens.close = id;
  }
  if (tokens.open < 0 || tokens.close < 0) return std::nullopt;
  return tokens;
}

Marker TextLayer::MarkerOf(TokenId id) const {
  for (const auto& [known, marker] : markers_) {
    if (known == id) return marker;
  }
  return tokenizer_.IsSpecial(id) ? Marker::kOther : Marker::kText;
}

}  // namespace mference
