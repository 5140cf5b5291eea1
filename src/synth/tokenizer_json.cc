#include "synth/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "format/json_writer.h"
#include "synth/random.h"
#include "synth/vocabulary.h"

namespace mference {
namespace {

struct SpecialToken {
  int32_t id = 0;
  const char* text = nullptr;
  bool special = true;
};

struct Merge {
  std::string_view left;
  std::string_view right;
};
using Merges = std::vector<Merge>;  // by rank; views into words

void AppendCharacter(uint32_t code, std::string& text) {
  const auto byte = [&text](uint32_t value) { text += static_cast<char>(value); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xC0 | code >> 6);
    byte(0x80 | (code & 0x3F));
  } else {
    byte(0xE0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3F));
    byte(0x80 | (code & 0x3F));
  }
}

std::string Character(uint32_t code) {
  std::string text;
  AppendCharacter(code, text);
  return text;
}

void AddBirths(const SynthWords& words, size_t count, Merges& merges) {
  for (const SynthWords::Word& word : words.words()) {
    if (merges.size() == count) return;
    const std::string_view text = word.text;
    merges.push_back({text.substr(0, word.split), text.substr(word.split)});
  }
}

// The other ways to make the same words, as a vocabulary converted from unigrams lists them.
void AddOtherSplits(const SynthWords& words, size_t count, Merges& merges) {
  for (const SynthWords::Word& word : words.words()) {
    const std::string_view text = word.text;
    for (size_t at = 1; at < text.size(); ++at) {
      if (merges.size() == count) return;
      if (at != word.split && words.Has(text.substr(0, at)) && words.Has(text.substr(at))) {
        merges.push_back({text.substr(0, at), text.substr(at)});
      }
    }
  }
}

// --- Gemma: characters with byte fallback ---------------------------------------------------

constexpr SpecialToken kGemmaTokens[] = {
    {0, "<pad>"},
    {1, "<eos>"},
    {2, "<bos>"},
    {3, "<unk>"},
    {4, "<mask>"},
    {46, "<|tool>"},
    {47, "<tool|>"},
    {48, "<|tool_call>"},
    {49, "<tool_call|>"},
    {50, "<|tool_response>"},
    {51, "<tool_response|>"},
    {52, "<|\"|>"},
    {98, "<|think|>"},
    {100, "<|channel>"},
    {101, "<channel|>"},
    {105, "<|turn>"},
    {106, "<turn|>"},
    {255999, "<|image>"},
    {256000, "<|audio>"},
    {258880, "<|image|>"},
    {258881, "<|audio|>"},
    {258882, "<image|>"},
    {258883, "<audio|>"},
    {258884, "<|video|>"},
};
constexpr size_t kGemmaFirstNewline = 107;  // runs of 1 to 31
constexpr size_t kGemmaFirstMarkRun = 138;  // runs of 2 to 32
constexpr size_t kGemmaFirstByte = 238;
constexpr size_t kGemmaFirstWord = 494;
constexpr size_t kRuns = 31;
// Of 262,144 tokens; others in proportion.
constexpr uint64_t kGemmaVocabulary = 262144;
constexpr uint64_t kGemmaMerges = 514906;
constexpr std::string_view kGemmaMark = "\u2581";

// Single characters, the most common scripts first.
std::vector<std::string> Characters(size_t count) {
  constexpr std::array<std::array<uint32_t, 2>, 6> kRanges = {{{0x21, 0x7E},
                                                               {0xA1, 0x17F},
                                                               {0x3B1, 0x3C9},
                                                               {0x410, 0x44F},
                                                               {0x3041, 0x3096},
                                                               {0x4E00, 0x9FFF}}};
  std::vector<std::string> characters;
  for (const auto& [first, last] : kRanges) {
    for (uint32_t code = first; code <= last && characters.size() < count; ++code) {
      characters.push_back(Character(code));
    }
  }
  return characters;
}

std::string Repeat(std::string_view text, size_t times) {
  std::string repeated;
  for (size_t i = 0; i < times; ++i) repeated += text;
  return repeated;
}

// --- Writing ---------------------------------------------------------------------------------

// Small members of the file, each as JSON text.
struct Pipeline {
  Json normalizer;
  Json pre_tokenizer;
  Json decoder;
  bool byte_fallback = false;
  const char* unknown = nullptr;
};

void WriteValue(const Json& value, JsonWriter& json) {
  switch (value.type()) {
    case Json::value_t::object:
      json.BeginObject();
      for (const auto& [key, member] : value.items()) {
        json.Key(key);
        WriteValue(member, json);
      }
      json.EndObject();
      break;
    case Json::value_t::array:
      json.BeginArray();
      for (const Json& element : value) WriteValue(element, json);
      json.EndArray();
      break;
    case Json::value_t::string:
      json.String(value.get_ref<const std::string&>());
      break;
    case Json::value_t::boolean:
      json.Bool(value.get<bool>());
      break;
    default:
      json.Int(value.get<int64_t>());
  }
}

std::string WriteTokenizer(const std::vector<std::string>& tokens, const Merges& merges,
                           std::span<const SpecialToken> added, const Pipeline& pipeline) {
  std::string text;
  JsonWriter json([&text](std::string_view piece) { text += piece; });
  json.BeginObject();
  json.Key("version");
  json.String("1.0");
  json.Key("added_tokens");
  json.BeginArray();
  for (const SpecialToken& token : added) {
    WriteValue({{"id", token.id},
                {"content", token.text},
                {"single_word", false},
                {"lstrip", false},
                {"rstrip", false},
                {"normalized", false},
                {"special", token.special}},
               json);
  }
  json.EndArray();
  json.Key("normalizer");
  WriteValue(pipeline.normalizer, json);
  json.Key("pre_tokenizer");
  WriteValue(pipeline.pre_tokenizer, json);
  json.Key("decoder");
  WriteValue(pipeline.decoder, json);
  json.Key("model");
  json.BeginObject();
  json.Key("type");
  json.String("BPE");
  if (pipeline.unknown != nullptr) {
    json.Key("unk_token");
    json.String(pipeline.unknown);
  }
  json.Key("fuse_unk");
  json.Bool(pipeline.byte_fallback);
  json.Key("byte_fallback");
  json.Bool(pipeline.byte_fallback);
  json.Key("ignore_merges");
  json.Bool(false);
  json.Key("vocab");
  json.BeginObject();
  for (size_t id = 0; id < tokens.size(); ++id) {
    json.Key(tokens[id]);
    json.Uint(id);
  }
  json.EndObject();
  json.Key("merges");
  json.BeginArray();
  for (const Merge& merge : merges) {
    json.BeginArray();
    json.String(merge.left);
    json.String(merge.right);
    json.EndArray();
  }
  json.EndArray();
  json.EndObject();
  json.EndObject();
  json.Finish();
  return text;
}

std::string GemmaTokenizer(size_t size, uint64_t stream) {
  const std::vector<std::string> characters = Characters(std::max<size_t>(size / 13, 94));
  // The mark and the characters come last.
  const size_t first_character = size - characters.size() - 1;
  const SynthWords words(std::string(kGemmaMark), first_character - kGemmaFirstWord, stream);

  std::vector<std::string> tokens(size);
  for (size_t id = 0; id < kGemmaFirstWord; ++id) tokens[id] = fmt::format("<unused{}>", id);
  for (size_t byte = 0; byte < 256; ++byte) {
    tokens[kGemmaFirstByte + byte] = fmt::format("<0x{:02X}>", byte);
  }
  for (size_t i = 0; i < words.words().size(); ++i) {
    tokens[kGemmaFirstWord + i] = words.words()[i].text;
  }
  tokens[first_character] = kGemmaMark;
  std::copy(characters.begin(), characters.end(), tokens.begin() + first_character + 1);

  Merges merges;
  for (size_t i = 0; i < kRuns; ++i) {
    tokens[kGemmaFirstNewline + i] = Repeat("\n", i + 1);
    tokens[kGemmaFirstMarkRun + i] = Repeat(kGemmaMark, i + 2);
  }
  for (size_t i = 0; i < kRuns; ++i) {
    if (i > 0) merges.push_back({tokens[kGemmaFirstNewline + i - 1], "\n"});
    merges.push_back({i == 0 ? kGemmaMark : tokens[kGemmaFirstMarkRun + i - 1], kGemmaMark});
  }
  const size_t merge_count = size * kGemmaMerges / kGemmaVocabulary;
  AddBirths(words, merge_count, merges);
  AddOtherSplits(words, merge_count, merges);

  const auto end = std::find_if(
      std::begin(kGemmaTokens), std::end(kGemmaTokens),
      [size](const SpecialToken& token) { return static_cast<size_t>(token.id) >= size; });
  const std::span<const SpecialToken> added(std::begin(kGemmaTokens), end);
  for (const SpecialToken& token : added) tokens[static_cast<size_t>(token.id)] = token.text;
  return WriteTokenizer(
      tokens, merges, added,
      {.normalizer = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kGemmaMark}},
       .pre_tokenizer = {{"type", "Split"},
                         {"pattern", {{"String", " "}}},
                         {"behavior", "MergedWithPrevious"},
                         {"invert", false}},
       .decoder = {{"type", "Sequence"},
                   {"decoders",
                    {{{"type", "Replace"}, {"pattern", {{"String", kGemmaMark}}}, {"content", " "}},
                     {{"type", "ByteFallback"}},
                     {{"type", "Fuse"}}}}},
       .byte_fallback = true,
       .unknown = "<unk>"});
}

// --- Qwen: bytes through an alphabet ---------------------------------------------------------

// In the order of their ids, which follow those of the words.
constexpr SpecialToken kQwenTokens[] = {
    {0, "<|endoftext|>"},
    {1, "<|im_start|>"},
    {2, "<|im_end|>"},
    {3, "<|object_ref_start|>"},
    {4, "<|object_ref_end|>"},
    {5, "<|box_start|>"},
    {6, "<|box_end|>"},
    {7, "<|quad_start|>"},
    {8, "<|quad_end|>"},
    {9, "<|vision_start|>"},
    {10, "<|vision_end|>"},
    {11, "<|vision_pad|>"},
    {12, "<|image_pad|>"},
    {13, "<|video_pad|>"},
    {14, "<tool_call>", false},
    {15, "</tool_call>", false},
    {16, "<|fim_prefix|>", false},
    {17, "<|fim_middle|>", false},
    {18, "<|fim_suffix|>", false},
    {19, "<|fim_pad|>", false},
    {20, "<|repo_name|>", false},
    {21, "<|file_sep|>", false},
    {22, "<tool_response>", false},
    {23, "</tool_response>", false},
    {24, "<think>", false},
    {25, "</think>", false},
};
constexpr int64_t kQwenBeyondWords = 276;  // special tokens and padding rows
constexpr int32_t kQwenTurnEnd = 2;        // in kQwenTokens

// Every byte as a printable character: printable Latin-1 as it is, the others from U+0100 on.
std::vector<std::string> ByteCharacters() {
  std::vector<std::string> plain;
  std::vector<std::string> moved;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    if (printable) {
      plain.push_back(Character(byte));
    } else {
      moved.push_back(Character(0x100 + static_cast<uint32_t>(moved.size())));
    }
  }
  plain.insert(plain.end(), moved.begin(), moved.end());
  return plain;
}

int32_t FirstQwenToken(const ArchConfig& arch) {
  return static_cast<int32_t>(arch.vocab_size - kQwenBeyondWords);
}

std::string QwenTokenizer(const ArchConfig& arch, uint64_t stream) {
  std::vector<std::string> tokens = ByteCharacters();
  const auto first_special = static_cast<size_t>(FirstQwenToken(arch));
  const SynthWords words(Character(0x120), first_special - tokens.size(), stream);
  for (const SynthWords::Word& word : words.words()) tokens.push_back(word.text);
  Merges merges;
  AddBirths(words, words.words().size(), merges);
  std::vector<SpecialToken> added(std::begin(kQwenTokens), std::end(kQwenTokens));
  for (SpecialToken& token : added) token.id += static_cast<int32_t>(first_special);
  constexpr const char* kPattern =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", false}};
  return WriteTokenizer(tokens, merges, added,
                        {.normalizer = {{"type", "NFC"}},
                         .pre_tokenizer = {{"type", "Sequence"},
                                           {"pretokenizers",
                                            {{{"type", "Split"},
                                              {"pattern", {{"Regex", kPattern}}},
                                              {"behavior", "Isolated"},
                                              {"invert", false}},
                                             byte_level}}},
                         .decoder = byte_level});
}

[[noreturn]] void FailFamily(const ArchConfig& arch) {
  Fail(ErrorCode::kInvalidArgument,
       "synthetic checkpoints of the family {} are not supported; supported are gemma4, qwen36",
       FamilyName(arch.family));
}

}  // namespace

std::string SyntheticTokenizerJson(const ArchConfig& arch, uint64_t seed) {
  if (arch.vocab_size < kLeastSynthVocabulary) {
    Fail(ErrorCode::kInvalidArgument,
         "a synthetic vocabulary has at least {} tokens, {} were asked for", kLeastSynthVocabulary,
         arch.vocab_size);
  }
  const uint64_t stream = RandomStream(seed, "vocabulary");
  switch (arch.family) {
    case Family::kGemma4:
      return GemmaTokenizer(static_cast<size_t>(arch.vocab_size), stream);
    case Family::kQwen36:
      return QwenTokenizer(arch, stream);
    default:
      FailFamily(arch);
  }
}

std::string SyntheticTokenizerConfigJson(const ArchConfig& arch) {
  Json config = {{"add_bos_token", false},
                 {"clean_up_tokenization_spaces", false},
                 {"tokenizer_class", "PreTrainedTokenizerFast"}};
  if (arch.family == Family::kGemma4) {
    config["bos_token"] = "<bos>";
    config["eos_token"] = "<eos>";
    config["pad_token"] = "<pad>";
    config["unk_token"] = "<unk>";
  } else {
    config["eos_token"] = "<|im_end|>";
    config["pad_token"] = "<|endoftext|>";
  }
  return config.dump(2) + "\n";
}

std::vector<int32_t> StopTokenIds(const ArchConfig& arch) {
  switch (arch.family) {
    case Family::kGemma4:
      return {1, 106, 50};
    case Family::kQwen36:
      return {FirstQwenToken(arch) + kQwenTurnEnd, FirstQwenToken(arch)};
    default:
      FailFamily(arch);
  }
}

}  // namespace mference
