#include "text/tokenizer/tokenizer_file.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/json_cursor.h"
#include "text/tokenizer/pipeline.h"

namespace mference {
namespace {

// A member other than the vocabulary and the merges; the largest published one (a template
// post-processor) has a few kilobytes.
constexpr size_t kMaxMemberBytes = size_t{1} << 20;
constexpr size_t kMaxAddedTokenBytes = size_t{32} << 10;
constexpr size_t kMaxAddedTokens = size_t{1} << 16;

class FileReader {
 public:
  FileReader(JsonCursor::ReadAt read, uint64_t size, std::string name, IdConflicts conflicts)
      : conflicts_(conflicts),
        read_(std::move(read)),
        size_(size),
        name_(std::move(name)),
        json_(read_, size_, name_) {}

  TokenizerParts Read() {
    ReadTopLevel();
    RequireMember("model");
    RequireMember("decoder");
    if (merges_offset_) ReadMergesAt(*merges_offset_);
    ConnectAddedTokens();
    FinishModel();
    return std::move(parts_);
  }

 private:
  [[noreturn]] void FailMember(std::string_view member, std::string_view problem) const {
    Fail(ErrorCode::kTokenizerInvalid, "{}: $.{}: {}", name_, member, problem);
  }

  void RequireMember(const char* member) const {
    if (!seen_.contains(member)) FailMember(member, "is missing");
  }

  // Registers a member; each may occur once.
  void See(const std::string& path) {
    if (!seen_.insert(path).second) json_.FailHere("the member '{}' occurs twice", path);
  }

  // Parses the next value, which is small. Wrapped in an object, so that paths start at its name.
  Json ReadSmall(const std::string& member) {
    json_.Capture(kMaxMemberBytes, &raw_);
    return ParseJson(fmt::format("{{\"{}\":{}}}", member, raw_), name_,
                     ErrorCode::kTokenizerInvalid);
  }

  void ReadTopLevel() {
    json_.BeginObject();
    std::string key;
    while (json_.NextKey(&key)) {
      See(key);
      if (key == "model") {
        ReadModel();
      } else if (key == "added_tokens") {
        ReadAddedTokens();
      } else {
        ReadPipelineMember(key);
      }
    }
    json_.ExpectEnd();
  }

  void ReadPipelineMember(const std::string& key) {
    static constexpr std::string_view kKnown[] = {"version",       "truncation", "padding",
                                                  "normalizer",    "decoder",    "pre_tokenizer",
                                                  "post_processor"};
    if (std::find(std::begin(kKnown), std::end(kKnown), key) == std::end(kKnown)) {
      json_.FailHere("the member '{}' is not known", key);
    }
    const Json document = ReadSmall(key);
    const JsonReader value = JsonReader(document, name_, ErrorCode::kTokenizerInvalid).At(key);
    if (key == "version") {
      if (value.String() != "1.0") value.FailHere("expected version 1.0");
    } else if (key == "normalizer") {
      parts_.normalizer = ReadNormalizer(value);
    } else if (key == "pre_tokenizer") {
      parts_.pre_tokenizer = ReadPreTokenizer(value, name_, &parts_.model.initial);
    } else if (key == "post_processor") {
      CheckPostProcessor(value);
    } else if (key == "decoder") {
      parts_.decoder = ReadDecoder(value);
    }
    // `truncation` and `padding` prepare batches for training; how long a prompt may be is decided
    // elsewhere, and no text is ever cut here.
  }

  void ReadAddedTokens() {
    json_.BeginArray();
    while (json_.NextElement()) {
      const std::string where =
          fmt::format("{}: added_tokens[{}]", name_, parts_.added_tokens.size());
      if (parts_.added_tokens.size() == kMaxAddedTokens) {
        json_.FailHere("more than {} added tokens", kMaxAddedTokens);
      }
      json_.Capture(kMaxAddedTokenBytes, &raw_);
      const Json document = ParseJson(raw_, where, ErrorCode::kTokenizerInvalid);
      parts_.added_tokens.push_back(
          ReadAddedToken(JsonReader(document, where, ErrorCode::kTokenizerInvalid)));
    }
  }

  void ReadModel() {
    json_.BeginObject();
    std::string key;
    while (json_.NextKey(&key)) {
      See("model." + key);
      if (key == "vocab") {
        ReadVocabulary();
      } else if (key == "merges") {
        // They name tokens: without the vocabulary they have to wait.
        if (seen_.contains("model.vocab")) {
          ReadMerges(json_);
        } else {
          merges_offset_ = json_.offset();
          json_.Skip();
        }
      } else {
        ReadModelSetting(key);
      }
    }
    for (const char* member : {"model.type", "model.vocab", "model.merges"}) RequireMember(member);
  }

  void ReadModelSetting(const std::string& key) {
    const Json document = ReadSmall(key);
    const JsonReader value =
        JsonReader(document, name_ + ": model", ErrorCode::kTokenizerInvalid).At(key);
    const bool is_null = value.value().is_null();
    if (key == "type") {
      if (value.String() != "BPE") value.FailHere("expected the model 'BPE'");
    } else if (key == "dropout") {
      if (!is_null && value.Double() != 0) value.FailHere("dropout is not supported");
    } else if (key == "continuing_subword_prefix" || key == "end_of_word_suffix") {
      if (!is_null && !value.String().empty()) value.FailHere("expected null or an empty string");
    } else if (key == "byte_fallback") {
      byte_fallback_ = !is_null && value.Bool();
    } else if (key == "ignore_merges") {
      parts_.model.ignore_merges = !is_null && value.Bool();
    } else if (key != "unk_token" && key != "fuse_unk") {
      // The unknown token is never needed: FinishModel requires that every byte can be encoded.
      value.FailHere("the setting is not known");
    }
  }

  void ReadVocabulary() {
    json_.BeginObject();
    std::string token;
    while (json_.NextKey(&token)) {
      const int64_t id = json_.Int();
      if (id < 0 || id > Tokenizer::kMaxTokenId) {
        json_.FailHere("expected an id of 0 to {}, found {}", Tokenizer::kMaxTokenId, id);
      }
      if (token.empty() || token.size() > Tokenizer::kMaxTokenBytes) {
        json_.FailHere("expected a token of 1 to {} bytes, found {}", Tokenizer::kMaxTokenBytes,
                       token.size());
      }
      switch (parts_.model.vocabulary.Add(token, static_cast<TokenId>(id))) {
        case Vocabulary::AddResult::kAdded:
          break;
        case Vocabulary::AddResult::kDuplicateToken:
          json_.FailHere("the token '{}' occurs twice", token);
        case Vocabulary::AddResult::kDuplicateId:
          json_.FailHere("the id {} of '{}' is also that of '{}'", id, token,
                         parts_.model.vocabulary.Text(static_cast<TokenId>(id)));
        case Vocabulary::AddResult::kColliding:
          json_.FailHere("the vocabulary collides with itself in a hash table");
      }
    }
  }

  void ReadMergesAt(uint64_t offset) {
    JsonCursor json(read_, size_, name_, offset);
    ReadMerges(json);
  }

  void ReadMerges(JsonCursor& json) {
    json.BeginArray();
    while (json.NextElement()) {
      if (parts_.model.merges.size() == Tokenizer::kMaxMerges) {
        json.FailHere("more than {} merges", Tokenizer::kMaxMerges);
      }
      if (json.Peek() == '[') {
        ReadMergePair(json);
      } else {
        ReadMergeString(json);
      }
    }
  }

  void ReadMergePair(JsonCursor& json) {
    json.BeginArray();
    if (!json.NextElement()) json.FailHere("expected two tokens in a merge, found none");
    joined_.assign(json.String());
    const size_t left_size = joined_.size();
    if (!json.NextElement()) json.FailHere("expected two tokens in a merge, found one");
    joined_.append(json.String());
    if (json.NextElement()) json.FailHere("expected two tokens in a merge, found more");
    AddMerge(json, left_size);
  }

  void ReadMergeString(JsonCursor& json) {
    const std::string_view text = json.String();
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      json.FailHere("expected a merge of two tokens with one space between, found '{}'", text);
    }
    joined_.assign(text, 0, space);
    joined_.append(text, space + 1);
    AddMerge(json, space);
  }

  // `joined_` holds the two tokens, of which the first has `left_size` bytes.
  void AddMerge(const JsonCursor& json, size_t left_size) {
    const auto find = [&](std::string_view token) {
      const std::optional<TokenId> id = parts_.model.vocabulary.Find(token);
      if (!id) {
        json.FailHere("merge {}: '{}' is not in the vocabulary", parts_.model.merges.size(), token);
      }
      return *id;
    };
    const std::string_view joined = joined_;
    parts_.model.merges.Add(
        {find(joined.substr(0, left_size)), find(joined.substr(left_size)), find(joined)});
  }

  // The reference's numbering: a token of the vocabulary keeps its id; another gets the one after
  // the largest so far, beginning at the number of entries. What the file says must agree.
  class Numbering {
   public:
    explicit Numbering(const Vocabulary& vocabulary)
        : vocabulary_(vocabulary), next_(static_cast<TokenId>(vocabulary.size())) {}

    TokenId IdOf(const AddedToken& token) {
      const TokenId id = vocabulary_.Find(token.content).value_or(next_);
      next_ = std::max(next_, id + 1);
      return id;
    }

   private:
    const Vocabulary& vocabulary_;
    TokenId next_;
  };

  void ConnectAddedTokens() {
    NumberAddedTokens();
    Vocabulary& vocabulary = parts_.model.vocabulary;
    for (const AddedToken& token : parts_.added_tokens) {
      const std::optional<TokenId> known = vocabulary.Find(token.content);
      if (known && vocabulary.IsAdded(*known)) RefuseAddedToken(token, "occurs twice");
      bool fits = true;
      if (!known) {
        const Vocabulary::AddResult result = vocabulary.Add(token.content, token.id);
        fits = result == Vocabulary::AddResult::kAdded;
        if (result == Vocabulary::AddResult::kDuplicateId) {
          if (conflicts_ == IdConflicts::kRefuse) {
            RefuseAddedToken(token, "another token has this id");
          }
          fits = vocabulary.Override(token.content, token.id);
        }
      }
      if (!fits) RefuseAddedToken(token, "collides with other tokens in a hash table");
      vocabulary.SetAdded(token.id, token.special);
    }
    std::sort(parts_.added_tokens.begin(), parts_.added_tokens.end(),
              [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  }

  void NumberAddedTokens() {
    Numbering all(parts_.model.vocabulary);
    Numbering special(parts_.model.vocabulary);
    for (AddedToken& token : parts_.added_tokens) {
      const TokenId id = all.IdOf(token);
      if (id > Tokenizer::kMaxTokenId) RefuseAddedToken(token, "no id is left for it");
      if (id != token.id && conflicts_ == IdConflicts::kRefuse) {
        RefuseAddedToken(token, fmt::format("expected the id {}", id));
      }
      token.id = id;
      token.special_only_id = token.special ? special.IdOf(token) : id;
    }
  }

  [[noreturn]] void RefuseAddedToken(const AddedToken& token, std::string_view problem) const {
    FailMember("added_tokens",
               fmt::format("'{}' with id {}: {}", token.content, token.id, problem));
  }

  void FinishModel() {
    BpeModel& model = parts_.model;
    CheckKinds();
    for (uint32_t byte = 0; byte < 256; ++byte) {
      std::string token;
      if (byte_fallback_) {
        token = fmt::format("<0x{:02X}>", byte);
      } else {
        AppendUtf8(token, kByteAlphabet.Code(static_cast<uint8_t>(byte)));
      }
      const std::optional<TokenId> id = model.vocabulary.Find(token);
      if (!id) FailMember("model.vocab", fmt::format("the token '{}' of a byte is missing", token));
      model.byte_tokens[byte] = *id;
    }
    for (size_t code = 0; code < model.ascii.size(); ++code) {
      const char character = static_cast<char>(code);
      model.ascii[code] = model.vocabulary.Find({&character, 1}).value_or(-1);
    }
    if (conflicts_ == IdConflicts::kRefuse) CheckControlTokens();
    model.vocabulary.ShrinkToFit();
    if (!model.merges.Build()) {
      FailMember("model.merges", "the merges collide with each other in a hash table");
    }
    if (model.initial == InitialSymbols::kCharacters && !model.ignore_merges) {
      model.breaks.Build(model.vocabulary, model.merges);
    }
  }

  // Bytes through an alphabet or characters with byte fallback: the three members must agree.
  void CheckKinds() const {
    const bool byte_level = parts_.model.initial == InitialSymbols::kBytes;
    if (byte_level == byte_fallback_) {
      FailMember("model.byte_fallback", byte_level
                                            ? "expected false beside a 'ByteLevel' pre-tokenizer"
                                            : "expected true without a 'ByteLevel' pre-tokenizer");
    }
    if (byte_level != (parts_.decoder == TokenDecoder::kByteLevel)) {
      FailMember("decoder", byte_level ? "expected 'ByteLevel', as in the pre-tokenizer"
                                       : "expected 'ByteFallback', as in the model");
    }
  }

  // Text that a user typed is encoded without recognising added tokens. That keeps control tokens
  // out of it only if they cannot be built from ordinary ones either.
  void CheckControlTokens() const {
    const auto refuse = [&](TokenId id, const std::string& how) {
      FailMember("added_tokens",
                 fmt::format("the special token '{}' can be reached from plain text: {}",
                             parts_.model.vocabulary.Text(id), how));
    };
    const Vocabulary& vocabulary = parts_.model.vocabulary;
    uint32_t rank = 0;
    for (const MergeTable::Merge& merge : parts_.model.merges.merges()) {
      if (vocabulary.IsSpecial(merge.result)) {
        refuse(merge.result, fmt::format("merge {} makes it", rank));
      }
      ++rank;
    }
    for (const TokenId id : parts_.model.byte_tokens) {
      if (vocabulary.IsSpecial(id)) refuse(id, "it stands for a byte");
    }
    if (parts_.model.initial == InitialSymbols::kBytes) return;
    for (const AddedToken& token : parts_.added_tokens) {
      const bool one_character = DecodeValidUtf8(token.content).length == token.content.size();
      if (token.special && one_character) refuse(token.id, "it is a single character");
    }
  }

  IdConflicts conflicts_;
  JsonCursor::ReadAt read_;
  uint64_t size_;
  std::string name_;
  JsonCursor json_;
  TokenizerParts parts_;
  std::set<std::string, std::less<>> seen_;  // members met so far
  bool byte_fallback_ = false;
  std::optional<uint64_t> merges_offset_;
  std::string raw_;
  std::string joined_;
};

}  // namespace

TokenizerParts ReadTokenizerFile(const std::filesystem::path& path, IdConflicts conflicts) {
  const FileDescriptor file = OpenForReading(path);
  const std::string name = path.string();
  const uint64_t size = FileSize(file, name);
  if (size > Tokenizer::kMaxFileBytes) {
    Fail(ErrorCode::kMetadataTooLarge, "{}: {} bytes; a tokenizer may have at most {}", name, size,
         Tokenizer::kMaxFileBytes);
  }
  const auto read = [&](uint64_t offset, std::span<std::byte> out) {
    ReadExactly(file, offset, out, name);
  };
  return FileReader(read, size, name, conflicts).Read();
}

TokenizerParts ReadTokenizerJson(std::string_view json, const std::string& name,
                                 IdConflicts conflicts) {
  if (json.size() > Tokenizer::kMaxFileBytes) {
    Fail(ErrorCode::kMetadataTooLarge, "{}: {} bytes; a tokenizer may have at most {}", name,
         json.size(), Tokenizer::kMaxFileBytes);
  }
  const auto read = [&](uint64_t offset, std::span<std::byte> out) {
    std::memcpy(out.data(), json.data() + offset, out.size());
  };
  return FileReader(read, json.size(), name, conflicts).Read();
}

}  // namespace mference
