#include "text/tokenizer/encoding.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace mference {
namespace {

// Extends a match over the white space around it, as far as `from` and `end`, where its token asks
// for that.
void Strip(std::string_view text, size_t from, size_t end, AddedTokenMatcher::Match* match) {
  while (match->token->lstrip && match->begin > from) {
    const size_t previous = PreviousUtf8(text, match->begin);
    if (!IsWhiteSpace(DecodeValidUtf8(text.substr(previous)).code)) break;
    match->begin = previous;
  }
  while (match->token->rstrip && match->end < end) {
    const Utf8Step step = DecodeValidUtf8(text.substr(match->end));
    if (!IsWhiteSpace(step.code)) break;
    match->end += step.length;
  }
}

}  // namespace

TokenizerTables::TokenizerTables(TokenizerParts tokenizer_parts)
    : parts(std::move(tokenizer_parts)) {
  std::vector<AddedTokenMatcher::Pattern> raw;
  std::vector<AddedTokenMatcher::Pattern> normalized;
  std::string buffer;
  for (const AddedToken& token : parts.added_tokens) {
    if (token.normalized) {
      normalized.push_back({std::string(parts.normalizer.Apply(token.content, &buffer)), &token});
    } else {
      raw.push_back({token.content, &token});
    }
  }
  raw_matcher = AddedTokenMatcher(std::move(raw));
  normalized_matcher = AddedTokenMatcher(std::move(normalized));
}

size_t TokenizerTables::memory_bytes() const {
  size_t bytes = sizeof(*this) + parts.model.memory_bytes() + parts.pre_tokenizer.memory_bytes() +
                 raw_matcher.memory_bytes() + normalized_matcher.memory_bytes() +
                 parts.added_tokens.capacity() * sizeof(AddedToken);
  for (const AddedToken& token : parts.added_tokens) bytes += token.content.capacity();
  return bytes;
}

void EncodingScratch::Trim() {
  constexpr size_t kKeptBytes = size_t{256} << 10;
  for (std::string* text : {&joined, &stretch, &normalized, &part}) {
    if (text->capacity() > kKeptBytes) *text = {};
  }
  if (regions.capacity() * sizeof(TextRegion) > kKeptBytes) regions = {};
  if (bpe.memory_bytes() > kKeptBytes) bpe.ReleaseMemory();
}

void Encoding::Run(std::string_view text, std::span<const TextRegion> regions) {
  text_ = text;
  regions_ = regions;
  size_t done = 0;  // text before it is encoded
  for (const TextRegion& region : regions) {
    if (!region.special) continue;
    size_t from = region.begin;
    AddedTokenMatcher::Match match = {};
    while (tables_.raw_matcher.Find(text, from, region.end, only_special_, &match)) {
      Strip(text, from, region.end, &match);
      Stretch(done, match.begin);
      out_.push_back(only_special_ ? match.token->special_only_id : match.token->id);
      done = from = match.end;
    }
  }
  Stretch(done, text.size());
}

// Encodes text_[begin, end), in which no raw added token is to be recognised any more.
void Encoding::Stretch(size_t begin, size_t end) {
  if (begin == end) return;
  if (tables_.normalized_matcher.empty()) {
    Ordinary(text_.substr(begin, end - begin));
    return;
  }
  // Tokens are looked for in normalised framing, one region at a time; what is not a token is
  // normalised again together with the message text around it, which changes nothing in it.
  while (regions_.front().end <= begin) regions_ = regions_.subspan(1);
  scratch_.stretch.clear();
  for (const TextRegion& region : regions_) {
    if (region.begin >= end) break;
    const size_t from = std::max(begin, region.begin);
    const std::string_view part = text_.substr(from, std::min(end, region.end) - from);
    if (region.special) {
      FindNormalized(tables_.parts.normalizer.Apply(part, &scratch_.part));
    } else {
      scratch_.stretch.append(part);
    }
  }
  Ordinary(scratch_.stretch);
}

// Appends `framing` to the stretch, except that at each token what has gathered is encoded.
void Encoding::FindNormalized(std::string_view framing) {
  size_t done = 0;
  AddedTokenMatcher::Match match = {};
  while (tables_.normalized_matcher.Find(framing, done, framing.size(), only_special_, &match)) {
    Strip(framing, done, framing.size(), &match);
    scratch_.stretch.append(framing, done, match.begin - done);
    Ordinary(scratch_.stretch);
    scratch_.stretch.clear();
    out_.push_back(only_special_ ? match.token->special_only_id : match.token->id);
    done = match.end;
  }
  scratch_.stretch.append(framing, done);
}

void Encoding::Ordinary(std::string_view text) {
  const std::string_view normal = tables_.parts.normalizer.Apply(text, &scratch_.normalized);
  auto sink = [this](std::string_view piece) { Words(piece); };
  tables_.parts.pre_tokenizer.Run(normal, &scratch_.match, sink);
}

void Encoding::Words(std::string_view piece) {
  while (!piece.empty()) {
    const size_t size = tables_.parts.model.breaks.Next(piece);
    Word(piece.substr(0, size));
    piece.remove_prefix(size);
  }
}

void Encoding::Word(std::string_view word) {
  const BpeModel& model = tables_.parts.model;
  if (word.size() > WordCache::kMaxWordBytes) {
    scratch_.bpe.Encode(model, word, &out_);
    return;
  }
  WordCache::Entry& entry = scratch_.cache.Place(word);
  if (WordCache::Holds(entry, word)) {
    out_.insert(out_.end(), entry.ids.begin(), entry.ids.begin() + entry.count);
    return;
  }
  const size_t before = out_.size();
  scratch_.bpe.Encode(model, word, &out_);
  WordCache::Store(&entry, word, std::span(out_).subspan(before));
}

}  // namespace mference
