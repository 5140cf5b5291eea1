// The small members of `tokenizer.json` that describe the pipeline around the model. Each function
// takes one of them as a reader and throws kTokenizerInvalid, naming the component, for anything
// that is not supported.
#pragma once

#include <string>

#include "base/json.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer_file.h"

namespace mference {

Normalizer ReadNormalizer(const JsonReader& json);

// `initial` says what the words are made of: bytes if the pipeline ends in `ByteLevel`. `name`
// begins the messages of patterns.
PreTokenizer ReadPreTokenizer(const JsonReader& json, const std::string& name,
                              InitialSymbols* initial);

TokenDecoder ReadDecoder(const JsonReader& json);

// Checked by name only: what it would add (BOS, EOS) is the framing's business.
void CheckPostProcessor(const JsonReader& json);

AddedToken ReadAddedToken(const JsonReader& json);

}  // namespace mference
