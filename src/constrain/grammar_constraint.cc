#include "constrain/grammar_constraint.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "constrain/text_automata.h"

namespace mference {
namespace {

using Kind = GrammarState::Kind;

// Texts that every grammar shares; their masks are kept with the vocabulary.
bool IsShared(const Dfa& automaton) {
  static const std::array<const Dfa*, 6> shared = {
      JsonStringText().get(), CanonicalJsonText().get(), RawText().get(),
      JsonKeyText().get(),    QwenValueText().get(),     DsmlValueText().get()};
  return std::find(shared.begin(), shared.end(), &automaton) != shared.end();
}

void RequireTokens(const Grammar& grammar, const TokenTrie& trie) {
  for (unsigned byte = 0; byte < kFirstMarkerByte; ++byte) {
    if (byte == 0xC0 || byte == 0xC1 || trie.HasByte(static_cast<uint8_t>(byte))) continue;
    Fail(ErrorCode::kTokenizerInvalid,
         "constrained decoding needs a token for every byte of UTF-8, but the tokenizer has none "
         "for byte 0x{:02X}",
         byte);
  }
  for (const char marker : grammar.markers()) {
    if (trie.HasByte(static_cast<uint8_t>(marker))) continue;
    const auto markers = DialectMarkers(trie.family());
    const size_t index = static_cast<uint8_t>(marker) - size_t{kFirstMarkerByte};
    Fail(ErrorCode::kTokenizerInvalid,
         "the reply's form needs the control token {}, which the tokenizer lacks",
         index < markers.size() ? markers[index].spelling : "of another family");
  }
}

}  // namespace

GrammarConstraint::GrammarConstraint(std::shared_ptr<const Grammar> grammar,
                                     std::shared_ptr<const TokenTrie> trie,
                                     std::vector<TokenId> end_ids)
    : grammar_(std::move(grammar)),
      trie_(std::move(trie)),
      end_ids_(std::move(end_ids)),
      matcher_(*grammar_),
      text_masks_(std::make_unique<TextMaskCache>()),
      words_(trie_->mask_words()) {
  RequireTokens(*grammar_, *trie_);
  std::erase_if(end_ids_, [this](TokenId id) { return id < 0 || id >= trie_->id_limit(); });
  masks_.reserve(kMaxMasks);
  matcher_.Start(&now_);
}

void GrammarConstraint::Accept(int32_t id) {
  const std::string_view bytes = trie_->TokenBytes(id);
  if (bytes.empty()) now_.clear();
  for (const char byte : bytes) {
    matcher_.Step(now_, static_cast<uint8_t>(byte), &next_);
    std::swap(now_, next_);
  }
}

std::span<const uint64_t> GrammarConstraint::Allowed(int64_t remaining_tokens) {
  // Where too little is left for any end, what is nearest to one.
  const uint32_t shortest = matcher_.Shortest(now_);
  const int64_t left = std::clamp<int64_t>(remaining_tokens - 1, 0, kUnreachable - 1);
  const uint32_t limit = std::max(static_cast<uint32_t>(left), shortest == 0 ? 0 : shortest - 1);
  bool valid = false;
  Mask& mask = Find(limit, &valid);
  mask.last_use = ++uses_;
  ++(valid ? counters_.cached : counters_.computed);
  if (!valid) Compute(limit, &mask);
  return mask.words;
}

// The mask of the state, or the place for it.
GrammarConstraint::Mask& GrammarConstraint::Find(uint32_t limit, bool* valid) {
  for (Mask& mask : masks_) {
    if (mask.set != now_) continue;
    *valid = mask.need <= limit;
    return mask;
  }
  if (masks_.size() < kMaxMasks) {
    masks_.emplace_back().words.resize(trie_->mask_words());
    return masks_.back();
  }
  return *std::min_element(masks_.begin(), masks_.end(),
                           [](const Mask& a, const Mask& b) { return a.last_use < b.last_use; });
}

void GrammarConstraint::Compute(uint32_t limit, Mask* mask) {
  if (text_masks_->size() >= kMaxTextMasks) text_masks_ = std::make_unique<TextMaskCache>();
  mask->set = now_;
  mask->need = 0;
  std::fill(mask->words.begin(), mask->words.end(), 0);
  plain_.clear();
  for (const Configuration& at : now_) {
    if (IsWideText(at)) {
      AddText(at, limit, mask);
    } else {
      plain_.push_back(at);
    }
  }
  const Matcher::Mark mark = matcher_.SetMark();
  if (!plain_.empty()) Walk(plain_, 0, trie_->size(), 0, limit, mask);
  matcher_.Rollback(mark);
  if (!matcher_.MayEnd(now_)) return;
  for (const TokenId id : end_ids_) mask->words[id / 64] |= uint64_t{1} << id % 64;
}

bool GrammarConstraint::IsWideText(const Configuration& at) const {
  const GrammarState& state = grammar_->state(at.state);
  const bool text =
      state.kind == Kind::kText || state.kind == Kind::kCounted || state.kind == Kind::kKey;
  return text && state.exit != GrammarState::kManyExits && grammar_->automaton(state.a).wide();
}

TextMaskCache& GrammarConstraint::CacheFor(const Dfa& automaton) {
  return IsShared(automaton) ? trie_->shared_masks() : *text_masks_;
}

void GrammarConstraint::AddText(const Configuration& at, uint32_t limit, Mask* mask) {
  const GrammarState& state = grammar_->state(at.state);
  const Dfa& automaton = grammar_->automaton(state.a);
  const bool counted = state.kind == Kind::kCounted;
  const uint32_t missing = counted && at.count < state.min ? state.min - at.count : 0;
  const uint32_t rounds = counted && state.max != UINT32_MAX ? state.max - at.count : UINT32_MAX;
  const uint32_t after = matcher_.AfterText(at) + (state.kind == Kind::kKey ? 1 : 0);
  const auto position = static_cast<Dfa::State>(at.position);
  TextMaskCache& cache = CacheFor(automaton);
  const TextMask& text = cache.Get(*trie_, automaton, position, state.exit, counted);
  const uint32_t most = automaton.max_distance() + missing + after;
  mask->need = std::max(mask->need, most);
  if (most <= limit) {
    AddInside(text, rounds, mask);
  } else if (after <= limit && missing == 0 && rounds == UINT32_MAX) {
    AddAll(cache.Within(*trie_, automaton, position, limit - after), mask);
  } else if (after <= limit) {
    AddTokensWithin(*trie_, automaton, position, missing, rounds, limit - after,
                    mask->words.data());
  }
  AddExits(text, at, limit, mask);
}

void GrammarConstraint::AddInside(const TextMask& text, uint32_t rounds, Mask* mask) {
  const std::vector<uint64_t>* inside = &text.inside;
  if (rounds < text.at_most.size()) {
    words_ = text.inside;
    for (size_t i = 0; i < text.at_most[rounds]; ++i) {
      const TokenId id = text.by_rounds[i];
      words_[id / 64] &= ~(uint64_t{1} << id % 64);
    }
    inside = &words_;
  }
  AddAll(*inside, mask);
}

void GrammarConstraint::AddAll(const std::vector<uint64_t>& words, Mask* mask) {
  for (size_t i = 0; i < mask->words.size(); ++i) mask->words[i] |= words[i];
}

void GrammarConstraint::AddExits(const TextMask& text, const Configuration& at, uint32_t limit,
                                 Mask* mask) {
  const GrammarState& state = grammar_->state(at.state);
  const bool alike = state.kind == Kind::kText;  // every exit leads to the same place
  const Matcher::Mark mark = matcher_.SetMark();
  if (levels_.empty()) levels_.emplace_back();
  bool known = false;
  for (const TextMask::Exit& exit : text.exits) {
    if (!alike || !known) {
      Configuration end = at;
      end.position = exit.state;
      if (state.kind == Kind::kCounted) {
        end.count += exit.rounds;
        if (end.count > state.max) continue;
      }
      const auto prefix =
          std::string_view(text.prefixes).substr(exit.prefix_begin, exit.prefix_size);
      left_.clear();
      matcher_.Leave(end, state.kind == Kind::kKey ? prefix : std::string_view(), &left_);
      matcher_.Step(left_, static_cast<uint8_t>(state.exit), &levels_[0]);
      known = true;
    }
    if (!levels_[0].empty()) {
      AddTokens(exit.node, levels_[0], limit, mask);
      Walk(levels_[0], exit.node + 1, trie_->end(exit.node), 1, limit, mask);
    }
    if (!alike) matcher_.Rollback(mark);
  }
  matcher_.Rollback(mark);
}

void GrammarConstraint::AddTokens(TokenTrie::Node node, const Configurations& after, uint32_t limit,
                                  Mask* mask) const {
  const std::span<const TokenId> tokens = trie_->tokens(node);
  if (tokens.empty()) return;
  const uint32_t need = matcher_.Shortest(after);
  mask->need = std::max(mask->need, need);
  if (need > limit) return;
  for (const TokenId id : tokens) mask->words[id / 64] |= uint64_t{1} << id % 64;
}

void GrammarConstraint::Walk(const Configurations& set, TokenTrie::Node begin, TokenTrie::Node end,
                             size_t depth, uint32_t limit, Mask* mask) {
  if (depth >= levels_.size()) levels_.resize(depth + 1);
  Configurations& after = levels_[depth];
  for (TokenTrie::Node node = begin; node < end; node = trie_->end(node)) {
    matcher_.Step(set, trie_->byte(node), &after);
    if (after.empty()) continue;
    AddTokens(node, after, limit, mask);
    Walk(after, node + 1, trie_->end(node), depth + 1, limit, mask);
  }
}

}  // namespace mference
