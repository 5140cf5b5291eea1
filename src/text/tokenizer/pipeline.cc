#include "text/tokenizer/pipeline.h"

#include <string>
#include <utility>

#include "base/utf8.h"
#include "text/tokenizer/word_breaks.h"

namespace mference {
namespace {

// Components in sequences, nested ones included; no published tokenizer has more than a handful.
constexpr size_t kMaxComponents = 16;
constexpr size_t kMaxReplacementBytes = 32;

// The pattern that `ByteLevel` applies itself when told to.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

[[noreturn]] void RefuseComponent(const JsonReader& json) {
  json.At("type").FailHere("expected a component that is supported here");
}

bool BoolOr(const JsonReader& json, std::string_view key, bool fallback) {
  return json.Has(key) ? json.At(key).Bool() : fallback;
}

// Calls `visit` with every component of a possibly nested `Sequence`, whose members are in `list`.
template <typename Visit>
void ForEachComponent(const JsonReader& json, std::string_view list, size_t* count,
                      const Visit& visit) {
  if (++*count > kMaxComponents) {
    json.FailHere(fmt::format("more than {} components", kMaxComponents));
  }
  const std::string type = json.At("type").String();
  if (type != "Sequence") {
    visit(json, type);
    return;
  }
  const JsonReader members = json.At(list);
  for (size_t i = 0; i < members.ArraySize(); ++i) {
    ForEachComponent(members.At(i), list, count, visit);
  }
}

bool IsOneCharacter(const std::string& text) {
  return !text.empty() && DecodeValidUtf8(text).length == text.size();
}

ReplaceCharacter ReadReplace(const JsonReader& json) {
  const JsonReader pattern = json.At("pattern");
  if (!pattern.Has("String")) pattern.FailHere("only a 'String' pattern is supported in 'Replace'");
  ReplaceCharacter replace = {pattern.At("String").String(), json.At("content").String()};
  if (!IsOneCharacter(replace.from)) pattern.FailHere("expected a pattern of one character");
  if (replace.to.size() > kMaxReplacementBytes) {
    json.At("content").FailHere(fmt::format("longer than {} bytes", kMaxReplacementBytes));
  }
  if (replace.to.find(replace.from) != std::string::npos) {
    json.At("content").FailHere("contains the character that it replaces");
  }
  return replace;
}

SplitBehavior ReadBehavior(const JsonReader& json) {
  const std::string name = json.String();
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  json.FailHere("expected 'Isolated', 'Removed' or 'MergedWithPrevious'");
}

std::variant<std::string, SplitPattern> ReadSplitPattern(const JsonReader& json,
                                                         const std::string& where) {
  if (json.Has("Regex")) return SplitPattern(json.At("Regex").String(), where);
  std::string literal = json.At("String").String();
  if (literal.empty()) json.FailHere("an empty pattern");
  return literal;
}

}  // namespace

Normalizer ReadNormalizer(const JsonReader& json) {
  if (json.value().is_null()) return {};
  std::vector<Normalizer::Step> steps;
  bool replaced = false;
  size_t count = 0;
  ForEachComponent(json, "normalizers", &count,
                   [&](const JsonReader& component, const std::string& type) {
                     if (type == "NFC") {
                       steps.emplace_back(ComposeNfc{});
                     } else if (type == "Replace") {
                       if (std::exchange(replaced, true))
                         component.FailHere("a second 'Replace' is not supported");
                       steps.emplace_back(ReadReplace(component));
                     } else {
                       RefuseComponent(component);
                     }
                   });
  return Normalizer(std::move(steps));
}

PreTokenizer ReadPreTokenizer(const JsonReader& json, const std::string& name,
                              InitialSymbols* initial) {
  *initial = InitialSymbols::kCharacters;
  if (json.value().is_null()) return {};
  std::vector<Split> splits;
  size_t count = 0;
  ForEachComponent(
      json, "pretokenizers", &count, [&](const JsonReader& component, const std::string& type) {
        if (*initial == InitialSymbols::kBytes) {
          component.FailHere("a component after 'ByteLevel' is not supported");
        }
        const std::string where = fmt::format("{}: {}", name, component.path());
        if (type == "Split") {
          splits.push_back({ReadSplitPattern(component.At("pattern"), where),
                            ReadBehavior(component.At("behavior")),
                            BoolOr(component, "invert", false)});
        } else if (type == "ByteLevel") {
          *initial = InitialSymbols::kBytes;
          if (BoolOr(component, "add_prefix_space", true)) {
            component.FailHere("'add_prefix_space' is not supported in 'ByteLevel'");
          }
          if (BoolOr(component, "use_regex", true)) {
            splits.push_back(
                {SplitPattern(kByteLevelPattern, where), SplitBehavior::kIsolated, false});
          }
        } else {
          RefuseComponent(component);
        }
      });
  return PreTokenizer(std::move(splits));
}

TokenDecoder ReadDecoder(const JsonReader& json) {
  std::vector<std::string> types;
  size_t count = 0;
  ForEachComponent(
      json, "decoders", &count, [&](const JsonReader& component, const std::string& type) {
        if (type == "Replace") {
          const JsonReader pattern = component.At("pattern");
          if (!pattern.Has("String") || pattern.At("String").String() != WordBreaks::kMark ||
              component.At("content").String() != " ") {
            component.FailHere("only replacing U+2581 by a space is supported in a decoder");
          }
        } else if (type != "ByteLevel" && type != "ByteFallback" && type != "Fuse") {
          RefuseComponent(component);
        }
        types.push_back(type);
      });
  if (types == std::vector<std::string>{"ByteLevel"}) return TokenDecoder::kByteLevel;
  if (types == std::vector<std::string>{"Replace", "ByteFallback", "Fuse"}) {
    return TokenDecoder::kByteFallback;
  }
  json.FailHere("expected the decoders [ByteLevel] or [Replace, ByteFallback, Fuse]");
}

void CheckPostProcessor(const JsonReader& json) {
  if (json.value().is_null()) return;
  size_t count = 0;
  ForEachComponent(json, "processors", &count,
                   [](const JsonReader& component, const std::string& type) {
                     if (type != "ByteLevel" && type != "TemplateProcessing") {
                       RefuseComponent(component);
                     }
                   });
}

AddedToken ReadAddedToken(const JsonReader& json) {
  AddedToken token;
  const int64_t id = json.At("id").Int();
  if (id < 0 || id > Tokenizer::kMaxTokenId) {
    json.At("id").FailHere(fmt::format("expected an id of 0 to {}", Tokenizer::kMaxTokenId));
  }
  token.id = static_cast<TokenId>(id);
  token.content = json.At("content").String();
  if (token.content.empty() || token.content.size() > Tokenizer::kMaxTokenBytes) {
    json.At("content").FailHere(fmt::format("expected 1 to {} bytes", Tokenizer::kMaxTokenBytes));
  }
  token.special = BoolOr(json, "special", false);
  token.normalized = BoolOr(json, "normalized", !token.special);
  token.lstrip = BoolOr(json, "lstrip", false);
  token.rstrip = BoolOr(json, "rstrip", false);
  if (BoolOr(json, "single_word", false)) {
    json.At("single_word").FailHere("'single_word' is not supported");
  }
  return token;
}

}  // namespace mference
