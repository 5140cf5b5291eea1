#include "text/tokenizer/tokenizer.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/encoding.h"
#include "text/tokenizer/tokenizer_file.h"

namespace mference {
namespace {

static_assert(WordCache::kBytes < Tokenizer::kScratchBytes);

// Scratches that no thread is using. One lock to take one, one to give it back.
class ScratchPool {
 public:
  std::unique_ptr<EncodingScratch> Take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<EncodingScratch> scratch = std::move(free_.back());
        free_.pop_back();
        return scratch;
      }
    }
    return std::make_unique<EncodingScratch>();
  }

  void Give(std::unique_ptr<EncodingScratch> scratch) {
    scratch->Trim();
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<EncodingScratch>> free_;
};

// Whether some region begins inside a scalar.
bool CutsScalar(std::string_view text, std::span<const TextRegion> regions) {
  return std::any_of(regions.begin(), regions.end(), [&](const TextRegion& region) {
    return region.begin < text.size() && (static_cast<uint8_t>(text[region.begin]) & 0xC0) == 0x80;
  });
}

// Replaces invalid UTF-8 in `text` and moves the borders of `regions` along. A border inside a
// scalar moves so that the scalar lies in the region where no added token is recognised.
std::string Sanitize(std::string_view text, std::span<TextRegion> regions) {
  std::string clean;
  clean.reserve(text.size() + text.size() / 8);
  size_t at = 0;
  for (TextRegion& region : regions) {
    const size_t begin = clean.size();
    while (at < region.end) {
      const Utf8Step step = DecodeUtf8(text.substr(at));
      if (region.special && at + step.length > region.end) break;
      clean.append(step.status == Utf8Status::kValid ? text.substr(at, step.length)
                                                     : kReplacementUtf8);
      at += step.length;
    }
    region.begin = begin;
    region.end = clean.size();
  }
  return clean;
}

void CheckSize(size_t bytes) {
  if (bytes > Tokenizer::kMaxTextBytes) {
    Fail(ErrorCode::kInvalidArgument, "a text of {} bytes is too long to encode; the limit is {}",
         bytes, Tokenizer::kMaxTextBytes);
  }
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(TokenizerParts parts) : tables(std::move(parts)) {}

  // Encodes `text`, which the regions cover, with a scratch that may hold both.
  std::vector<TokenId> Encode(std::string_view text, bool only_special, EncodingScratch* scratch) {
    std::string clean;
    if (!IsValidUtf8(text) || CutsScalar(text, scratch->regions)) {
      clean = Sanitize(text, scratch->regions);
      text = clean;
    }
    std::vector<TokenId> ids;
    Encoding(tables, only_special, scratch, &ids).Run(text, scratch->regions);
    return ids;
  }

  const TokenizerTables tables;
  ScratchPool scratches;
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::Load(const std::filesystem::path& path, IdConflicts conflicts) {
  return Tokenizer(std::make_unique<Impl>(ReadTokenizerFile(path, conflicts)));
}

Tokenizer Tokenizer::FromJson(std::string_view json, const std::string& name,
                              IdConflicts conflicts) {
  return Tokenizer(std::make_unique<Impl>(ReadTokenizerJson(json, name, conflicts)));
}

std::vector<TokenId> Tokenizer::Encode(std::string_view text, SpecialParsing parsing) const {
  CheckSize(text.size());
  if (text.empty()) return {};
  // A scratch that an exception leaves behind is dropped, not reused.
  std::unique_ptr<EncodingScratch> scratch = impl_->scratches.Take();
  scratch->regions.assign(1, {0, text.size(), parsing != SpecialParsing::kNone});
  std::vector<TokenId> ids =
      impl_->Encode(text, parsing == SpecialParsing::kSpecialOnly, scratch.get());
  impl_->scratches.Give(std::move(scratch));
  return ids;
}

std::vector<TokenId> Tokenizer::Encode(std::span<const TextSpan> spans) const {
  std::unique_ptr<EncodingScratch> scratch = impl_->scratches.Take();
  std::string& joined = scratch->joined;
  std::vector<TextRegion>& regions = scratch->regions;
  joined.clear();
  regions.clear();
  for (const TextSpan& span : spans) {
    CheckSize(joined.size() + span.text.size());
    if (span.text.empty()) continue;
    if (regions.empty() || regions.back().special != span.special) {
      regions.push_back({joined.size(), joined.size(), span.special});
    }
    joined.append(span.text);
    regions.back().end = joined.size();
  }
  std::vector<TokenId> ids = impl_->Encode(joined, /*only_special=*/false, scratch.get());
  impl_->scratches.Give(std::move(scratch));
  return ids;
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, bool skip_special) const {
  Detokenizer detokenizer(*this, skip_special);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.Push(id);
  text += detokenizer.Flush();
  return text;
}

void Tokenizer::AppendTokenBytes(TokenId id, std::string* out) const {
  const std::string_view token = impl_->tables.parts.model.vocabulary.Text(id);
  const size_t begin = out->size();
  if (impl_->tables.parts.decoder == TokenDecoder::kByteLevel) {
    for (std::string_view rest = token; !rest.empty();) {
      const Utf8Step step = DecodeValidUtf8(rest);
      const std::optional<uint8_t> byte = kByteAlphabet.Byte(step.code);
      if (!byte) {  // an added token in plain writing
        out->replace(begin, std::string::npos, token);
        return;
      }
      out->push_back(static_cast<char>(*byte));
      rest.remove_prefix(step.length);
    }
    return;
  }
  if (const std::optional<uint8_t> byte = ByteOfFallbackToken(token)) {
    out->push_back(static_cast<char>(*byte));
    return;
  }
  for (size_t from = 0; from < token.size();) {
    const size_t mark = std::min(token.find(WordBreaks::kMark, from), token.size());
    out->append(token, from, mark - from);
    if (mark < token.size()) out->push_back(' ');
    from = mark + WordBreaks::kMark.size();
  }
}

std::optional<TokenId> Tokenizer::TokenToId(std::string_view token) const {
  return impl_->tables.parts.model.vocabulary.Find(token);
}

std::optional<std::string_view> Tokenizer::IdToToken(TokenId id) const {
  const std::string_view text = impl_->tables.parts.model.vocabulary.Text(id);
  return text.empty() ? std::nullopt : std::optional(text);
}

bool Tokenizer::IsSpecial(TokenId id) const {
  return impl_->tables.parts.model.vocabulary.IsSpecial(id);
}

bool Tokenizer::IsAdded(TokenId id) const {
  return impl_->tables.parts.model.vocabulary.IsAdded(id);
}

size_t Tokenizer::vocab_size() const { return impl_->tables.parts.model.vocabulary.size(); }

TokenId Tokenizer::id_limit() const { return impl_->tables.parts.model.vocabulary.id_limit(); }

std::span<const AddedToken> Tokenizer::added_tokens() const {
  return impl_->tables.parts.added_tokens;
}

size_t Tokenizer::memory_bytes() const { return impl_->tables.memory_bytes(); }

}  // namespace mference
