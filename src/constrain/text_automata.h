// The automata that every grammar shares: the text of strings and keys, white space.
//
// Each is made once per process and never freed. Those of free text have their start as their only
// accepting state, one round per Unicode scalar, so that scalars can be counted.
#pragma once

#include "constrain/dfa.h"

namespace mference {

// Between the quotes of a JSON string: UTF-8 and every escape that RFC 8259 knows; surrogate
// escapes only in pairs.
const DfaPtr& JsonStringText();
// The same with escapes only where JSON demands them (StringForm::kJson).
const DfaPtr& CanonicalJsonText();
// Any UTF-8.
const DfaPtr& RawText();
// A key of an object whose keys are free: as JsonStringText, but without escapes, so that equal
// keys are equal bytes.
const DfaPtr& JsonKeyText();
// The same without quotes, as Gemma writes keys: letters, digits, `_ - . $`, at least one.
const DfaPtr& BareKeyText();
// UTF-8 without what ends a value in Qwen's calls ("</parameter>") or DeepSeek's ("DSML｜").
const DfaPtr& QwenValueText();
const DfaPtr& DsmlValueText();
// Where pretty-printed JSON breaks lines: nothing, a space, or a newline with at most 64 spaces or
// 16 tabs.
const DfaPtr& WhiteSpace();
// Nothing or a space.
const DfaPtr& OptionalSpace();

}  // namespace mference
