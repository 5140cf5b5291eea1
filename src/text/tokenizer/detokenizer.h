// Token ids to text as they arrive, without ever cutting a character in two.
#pragma once

#include <string>
#include <string_view>

#include "text/tokenizer/tokenizer.h"

namespace mference {

// Turns a stream of token ids into valid UTF-8. Each call costs O(bytes of the token). Bytes that
// may still become a character are held back (three at most); bytes that cannot are released as one
// U+FFFD per maximal invalid sequence. All pieces and the flush, joined, are `Tokenizer::Decode` of
// all ids. No white space is "cleaned up". Not thread-safe; one per stream.
class Detokenizer {
 public:
  // `tokenizer` must outlive this object. `skip_special`: control tokens give no text.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  // The text released by `id`, often empty. The view lives until the next call.
  std::string_view Push(TokenId id);

  // Ends the stream: bytes still held back become U+FFFD. The object is ready for a new stream.
  std::string_view Flush();

  // True if bytes are held back.
  bool pending() const { return !held_.empty(); }

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string held_;  // between calls: an incomplete but so far valid UTF-8 sequence
  std::string piece_;
};

}  // namespace mference
