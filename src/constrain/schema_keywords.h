// Which keywords a schema may have, and reading their values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace mference {

// Refuses what is no schema, and every keyword that restricts and is not supported.
void CheckKeywords(const OrderedJson& schema, const std::string& pointer);

// `pointer` with one more step, escaped (RFC 6901).
std::string PointerTo(const std::string& pointer, std::string_view step);

// The first keyword of the schema that restricts, other than `except`; empty if there is none.
std::string_view RestrictionBeside(const OrderedJson& schema,
                                   std::initializer_list<std::string_view> except);

// A member that must be an integer from 0 on, at most `limit`.
std::optional<uint32_t> CountOf(const OrderedJson& schema, const char* keyword,
                                const std::string& pointer, uint32_t limit);

const OrderedJson* MemberOf(const OrderedJson& schema, std::string_view keyword);

}  // namespace mference
