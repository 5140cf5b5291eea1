// The text side of a model for the commands that need no weights: of an installed MODEL, or put
// together from `--tokenizer`, `--template` and `--family`.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/command_line.h"
#include "engine/text_layer.h"

namespace mference::cli {

struct TextPartsFlags {
  std::string model;
  std::filesystem::path tokenizer;      // a directory with tokenizer.json, or that file
  std::filesystem::path chat_template;  // a Jinja file
  std::string family;

  // Only the options; MODEL is declared by the command.
  void Declare(CLI::App& command, bool with_tokenizer, bool with_template);
  bool has_parts() const { return !tokenizer.empty() || !chat_template.empty() || !family.empty(); }
};

// What a command asks for is read at the first use; flags win over the installed model.
class TextParts {
 public:
  // Throws UsageError when there is neither a MODEL nor a part.
  explicit TextParts(TextPartsFlags flags);

  // Throws UsageError naming the flag that would supply what is missing.
  TextFamily family();
  const Tokenizer& tokenizer();
  std::optional<std::string> template_source();
  PromptRenderer MakeRenderer();
  // The beginning-of-sequence token's id.
  TokenId bos();

 private:
  // The installed model; nullptr when none was named.
  const ModelDirectory* directory();

  TextPartsFlags flags_;
  std::optional<ModelDirectory> directory_;
  std::optional<Tokenizer> tokenizer_;
};

}  // namespace mference::cli
