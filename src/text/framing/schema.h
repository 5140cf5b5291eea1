// Schema normalisation for Gemma, whose template needs one scalar `type` at every schema node.
#pragma once

#include "text/template/value.h"

namespace mference {

// Returns an equivalent of `schema` (a dictionary) in which every node has one string `type` that
// is not "null" where another exists, unions are resolved to their first usable branch, `allOf` is
// merged, and every object has `properties`. Idempotent. Nothing else changes; key order is kept.
jinja::Value NormaliseSchemaForGemma(const jinja::Value& schema);

}  // namespace mference
