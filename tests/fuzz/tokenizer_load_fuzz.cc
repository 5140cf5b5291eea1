// Any bytes as a tokenizer.json: refused with an error, or a tokenizer that encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "text/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mference;
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  for (const IdConflicts conflicts : {IdConflicts::kRefuse, IdConflicts::kFollowReference}) {
    try {
      const Tokenizer tokenizer = Tokenizer::FromJson(json, "fuzz", conflicts);
      // The file itself is a text that mentions its own tokens.
      const std::string_view text = json.substr(0, 4096);
      for (const SpecialParsing parsing :
           {SpecialParsing::kAll, SpecialParsing::kSpecialOnly, SpecialParsing::kNone}) {
        const std::vector<TokenId> ids = tokenizer.Encode(text, parsing);
        tokenizer.Decode(ids, parsing == SpecialParsing::kAll);
        for (const TokenId id : ids) {
          const bool control = tokenizer.IsSpecial(id);
          if (control && parsing == SpecialParsing::kNone && conflicts == IdConflicts::kRefuse) {
            __builtin_trap();  // plain text has become a control token
          }
        }
      }
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal) throw;
    }
  }
  return 0;
}
