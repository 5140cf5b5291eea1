// Text to token ids and back, from a Hugging Face `tokenizer.json`.
//
// One class for all five families: what differs between them (normalizer, split patterns,
// byte-level alphabet or byte fallback, merge order, added tokens) is read from the file, and a
// pipeline component that is not understood exactly is refused by name instead of approximated.
//
// Beginning-of-sequence and end-of-sequence tokens are never added here: the framing writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mference {

using TokenId = int32_t;

// Which added tokens are recognised where their text occurs.
enum class SpecialParsing {
  kAll,          // every added token
  kSpecialOnly,  // only those the file flags `special`
  kNone,         // none: what a user typed, or a document
};

// A part of a rendered prompt. The spans of a prompt are encoded as one text: where one ends is no
// boundary for merging, so cutting ordinary text into spans never changes its ids.
struct TextSpan {
  std::string_view text;
  bool special = false;  // true: framing, where added tokens are recognised; false: message text
};

// An entry of the file's `added_tokens`.
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;     // a control token: left out of visible text
  bool normalized = false;  // looked for in the normalised text, after all others
  bool lstrip = false;      // swallows white space before it
  bool rstrip = false;      // swallows white space after it
  // Its id under kSpecialOnly. The reference numbers the added tokens that the vocabulary lacks in
  // turn, and fewer of them take part then.
  TokenId special_only_id = 0;
};

// What to do with a file whose ids contradict each other: an added token whose id is not the one
// that the reference implementation gives it, or a control token that plain text can be encoded to.
enum class IdConflicts {
  kRefuse,           // the choice for running a model
  kFollowReference,  // use the reference's ids, whatever they collide with; for looking into files
};

// An immutable tokenizer. Movable; every const member may be called from several threads at once.
class Tokenizer {
 public:
  // Limits on the file, checked before anything of that size is built.
  static constexpr uint64_t kMaxFileBytes = uint64_t{64} << 20;
  static constexpr TokenId kMaxTokenId = (1 << 22) - 2;
  static constexpr size_t kMaxMerges = (size_t{1} << 21) - 2;
  static constexpr size_t kMaxTokenBytes = 4096;
  // Limit on one call of Encode.
  static constexpr size_t kMaxTextBytes = size_t{256} << 20;

  // Reads a `tokenizer.json`. Throws kNotFound or kIo for the file, kMetadataTooLarge above
  // kMaxFileBytes, kTokenizerInvalid (path, byte offset or member, what was expected and found) for
  // malformed content and for components that are not supported.
  static Tokenizer Load(const std::filesystem::path& path,
                        IdConflicts conflicts = IdConflicts::kRefuse);

  // The same from text in memory; `name` stands in for the path in messages.
  static Tokenizer FromJson(std::string_view json, const std::string& name,
                            IdConflicts conflicts = IdConflicts::kRefuse);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Ids of `text`. Invalid UTF-8 is read as one U+FFFD per maximal invalid sequence. Takes
  // O(n log n) whatever the text. Throws kInvalidArgument above kMaxTextBytes.
  std::vector<TokenId> Encode(std::string_view text, SpecialParsing parsing) const;

  // Ids of the spans' joined text. Only a token whose whole text lies in `special` spans is
  // recognised (every added token, not only control tokens), so message text cannot spell one.
  std::vector<TokenId> Encode(std::span<const TextSpan> spans) const;

  // Text of `ids`: what a Detokenizer streams, joined. Ids without a token give nothing; invalid
  // UTF-8 gives one U+FFFD per maximal invalid sequence. `skip_special` leaves out tokens flagged
  // special.
  std::string Decode(std::span<const TokenId> ids, bool skip_special) const;

  // Appends the bytes that a token stands for (not always whole UTF-8 scalars); nothing for an id
  // without a token.
  void AppendTokenBytes(TokenId id, std::string* out) const;

  // The id of a token by its text in the file's vocabulary or added tokens (for byte-level
  // vocabularies in the byte alphabet: a space is U+0120).
  std::optional<TokenId> TokenToId(std::string_view token) const;

  // The reverse. The view lives as long as the tokenizer.
  std::optional<std::string_view> IdToToken(TokenId id) const;

  bool IsSpecial(TokenId id) const;  // an added token flagged special
  bool IsAdded(TokenId id) const;

  size_t vocab_size() const;  // number of tokens, added ones included
  TokenId id_limit() const;   // largest id + 1; ids below it may have no token

  std::span<const AddedToken> added_tokens() const;  // ascending by id

  // Bytes held by the tables and compiled patterns. Each thread that encodes at the same time adds
  // a scratch of about kScratchBytes, kept for reuse.
  size_t memory_bytes() const;
  static constexpr size_t kScratchBytes = size_t{3} << 20;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace mference
