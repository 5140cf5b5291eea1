// Code points, and the few Unicode properties that Python's string methods depend on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace mference::jinja {

// Offset of the first byte that is not part of well-formed UTF-8, or npos.
size_t FindInvalidUtf8(std::string_view text);

// The functions below take well-formed UTF-8.
size_t CountCodePoints(std::string_view text);
// Length in bytes of the code point that begins at `position`.
size_t CodePointBytes(std::string_view text, size_t position);
char32_t DecodeAt(std::string_view text, size_t position);

// As str.isspace, str.isprintable, str.isalpha, ... of one character.
bool IsSpace(char32_t c);
bool IsPrintable(char32_t c);
bool IsAlpha(char32_t c);
bool IsDecimal(char32_t c);
bool IsDigit(char32_t c);
bool IsNumeric(char32_t c);
bool IsWordCharacter(char32_t c);  // \w of Python's re
bool IsLowerCase(char32_t c);
bool IsUpperCase(char32_t c);
bool IsTitleCase(char32_t c);

// Full case mappings, appended to `out`. The context rule for a final sigma is the caller's.
void AppendUpper(std::string& out, char32_t c);
void AppendLower(std::string& out, char32_t c);
void AppendTitle(std::string& out, char32_t c);
void AppendFolded(std::string& out, char32_t c);
bool IsCased(char32_t c);
bool IsCaseIgnorable(char32_t c);

}  // namespace mference::jinja
