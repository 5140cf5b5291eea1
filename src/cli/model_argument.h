// The MODEL argument where it may be left out.
#pragma once

#include <filesystem>
#include <string>

namespace mference::cli {

inline constexpr const char* kModelHelp =
    "An installed model's name, or the path of a .gturbo directory";

// Where the model lies; see ResolveInstalled. An empty argument means MFERENCE_MODEL, else the only
// model there is. Throws kNotFound, saying what to install.
std::filesystem::path ResolveModelPath(const std::string& argument);

// "gemma4" for ".../gemma4.gturbo".
std::string ModelNameOf(const std::filesystem::path& directory);

}  // namespace mference::cli
