#include "constrain/token_trie.h"

#include <algorithm>

#include "base/error.h"
#include "constrain/grammar.h"

namespace mference {
namespace {

// Bytes from the first marker byte on are no UTF-8, and C0 and C1 neither: a token that has one
// among others, or is no marker, can be part of no valid text.
bool HasForeignByte(std::string_view bytes) {
  return std::any_of(bytes.begin(), bytes.end(), [](char c) {
    const auto byte = static_cast<uint8_t>(c);
    return byte >= kFirstMarkerByte || byte == 0xC0 || byte == 0xC1;
  });
}

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer, TextFamily family)
    : family_(family), id_limit_(tokenizer.id_limit()) {
  std::vector<std::pair<TokenId, char>> markers;
  for (const MarkerSpelling& entry : DialectMarkers(family)) {
    const std::optional<TokenId> id = tokenizer.TokenToId(entry.spelling);
    if (id && tokenizer.IsAdded(*id)) {
      markers.emplace_back(*id, MarkerByte(family, entry.marker));
    }
  }
  text_begin_.reserve(static_cast<size_t>(id_limit_) + 1);
  std::string bytes;
  for (TokenId id = 0; id < id_limit_; ++id) {
    text_begin_.push_back(static_cast<uint32_t>(text_.size()));
    const auto marker = std::find_if(markers.begin(), markers.end(),
                                     [id](const auto& entry) { return entry.first == id; });
    if (marker != markers.end()) {
      text_ += marker->second;
      continue;
    }
    if (tokenizer.IsSpecial(id)) continue;
    bytes.clear();
    tokenizer.AppendTokenBytes(id, &bytes);
    if (!HasForeignByte(bytes)) text_ += bytes;
  }
  text_begin_.push_back(static_cast<uint32_t>(text_.size()));
  Build();
}

TokenTrie::TokenTrie(std::span<const std::string> tokens)
    : id_limit_(static_cast<TokenId>(tokens.size())) {
  for (const std::string& token : tokens) {
    text_begin_.push_back(static_cast<uint32_t>(text_.size()));
    text_ += token;
  }
  text_begin_.push_back(static_cast<uint32_t>(text_.size()));
  Build();
}

void TokenTrie::Build() {
  for (TokenId id = 0; id < id_limit_; ++id) {
    if (!TokenBytes(id).empty()) tokens_.push_back(id);
  }
  std::sort(tokens_.begin(), tokens_.end(), [this](TokenId a, TokenId b) {
    const int order = TokenBytes(a).compare(TokenBytes(b));
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<Node> path;  // the nodes of the token before
  std::string_view before;
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view bytes = TokenBytes(tokens_[i]);
    if (bytes.size() == 1) single_bytes_.set(static_cast<uint8_t>(bytes[0]));
    const size_t common = static_cast<size_t>(
        std::mismatch(bytes.begin(), bytes.end(), before.begin(), before.end()).first -
        bytes.begin());
    for (; path.size() > common; path.pop_back()) ends_[path.back()] = size();
    for (size_t at = common; at < bytes.size(); ++at) {
      path.push_back(size());
      bytes_.push_back(static_cast<uint8_t>(bytes[at]));
      ends_.push_back(0);
      // Tokens that end at this node come next, if any: at its last byte, or with its descendants.
      first_token_.push_back(i);
    }
    before = bytes;
  }
  for (; !path.empty(); path.pop_back()) ends_[path.back()] = size();
  first_token_.push_back(static_cast<uint32_t>(tokens_.size()));
  bytes_.shrink_to_fit();
  ends_.shrink_to_fit();
  first_token_.shrink_to_fit();
  shared_masks_ = std::make_unique<TextMaskCache>();
}

size_t TokenTrie::memory_bytes() const {
  return text_.size() + text_begin_.size() * sizeof(uint32_t) + bytes_.size() +
         ends_.size() * sizeof(Node) + first_token_.size() * sizeof(uint32_t) +
         tokens_.size() * sizeof(TokenId) + shared_masks_->memory_bytes();
}

}  // namespace mference
