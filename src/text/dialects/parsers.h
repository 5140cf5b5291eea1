// The five dialects' parsers, for `MakeDialectParser` alone.
#pragma once

#include <memory>

#include "text/dialects/dialect.h"

namespace mference {

std::unique_ptr<DialectParser> MakeGemmaParser(DialectOptions options);
std::unique_ptr<DialectParser> MakeChatMlParser(DialectOptions options);  // Qwen and Maple
std::unique_ptr<DialectParser> MakeDsmlParser(DialectOptions options);    // DeepSeek
std::unique_ptr<DialectParser> MakeInklingParser(DialectOptions options);

}  // namespace mference
