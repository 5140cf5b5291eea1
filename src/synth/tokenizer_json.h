// tokenizer.json of a synthetic checkpoint: the family's pipeline over an invented vocabulary of
// the real size, so that load time and memory mean something.
//
// The words are random letters in up to twelve, grown from shorter ones, so that every merge joins
// two tokens of the vocabulary into a third. Special tokens have their published ids where those
// are known.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/arch_config.h"

namespace mference {

// The smallest vocabulary that holds the fixed tokens and some words.
constexpr int64_t kLeastSynthVocabulary = 1024;

// `arch.vocab_size` tokens; padding rows that the family has beyond its tokens stay without one.
// kInvalidArgument for a vocabulary that is too small or a family that is not known here.
std::string SyntheticTokenizerJson(const ArchConfig& arch, uint64_t seed);
std::string SyntheticTokenizerConfigJson(const ArchConfig& arch);

// Ids that end a reply, the end of a turn first for Qwen.
std::vector<int32_t> StopTokenIds(const ArchConfig& arch);

}  // namespace mference
