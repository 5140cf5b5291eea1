// Template source to tree.
#pragma once

#include <string>
#include <string_view>

#include "text/template/ast.h"

namespace mference::jinja {

// Throws TemplateError (kSyntax) with a line but no location.
ParsedTemplate ParseTemplate(std::string_view source, std::string name);

}  // namespace mference::jinja
