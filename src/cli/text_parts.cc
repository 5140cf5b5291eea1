#include "cli/text_parts.h"

#include "base/file.h"
#include "cli/model_argument.h"
#include "model/catalogue.h"

namespace mference::cli {
namespace {

constexpr uint64_t kMaxTokenizerConfigBytes = uint64_t{8} << 20;

// `bos_token` of a tokenizer_config.json: its text, or an object with `content`.
std::string BosOfConfig(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "tokenizer_config.json";
  if (!std::filesystem::exists(path)) return "";
  const Json document = ParseJson(ReadTextFile(path, kMaxTokenizerConfigBytes), path.string(),
                                  ErrorCode::kTokenizerInvalid);
  const JsonReader config(document, path.string(), ErrorCode::kTokenizerInvalid);
  if (!config.Has("bos_token")) return "";
  const JsonReader bos = config.At("bos_token");
  return bos.value().is_object() ? bos.At("content").String() : bos.String();
}

}  // namespace

void TextPartsFlags::Declare(CLI::App& command, bool with_tokenizer, bool with_template) {
  if (with_tokenizer) {
    AddPath(command, "--tokenizer", "DIR", "Directory with a tokenizer.json, instead of a MODEL",
            tokenizer);
  }
  if (with_template) {
    AddPath(command, "--template", "FILE", "A chat template, instead of the MODEL's",
            chat_template);
  }
  AddParsed(command, "--family", "NAME", "gemma4, qwen36, deepseek_v4, inkling or maple",
            [this](const std::string& text) {
              if (!ParseTextFamily(text)) {
                Fail(ErrorCode::kInvalidArgument,
                     "expected gemma4, qwen36, deepseek_v4, inkling or maple");
              }
              family = text;
            });
}

TextParts::TextParts(TextPartsFlags flags) : flags_(std::move(flags)) {
  if (flags_.model.empty() && !flags_.has_parts()) {
    throw UsageError("required argument missing: MODEL (or parts of one, see --help)");
  }
}

const ModelDirectory* TextParts::directory() {
  if (flags_.model.empty()) return nullptr;
  if (!directory_) {
    // The weights are not looked at, so their hashes are never waited for.
    directory_ = ModelDirectory::Open(
        ResolveModelPath(flags_.model),
        {.policy = VerifyPolicy::kAuto, .resolve = ResolveModel, .defer_hashing = true});
  }
  return &*directory_;
}

TextFamily TextParts::family() {
  if (!flags_.family.empty()) return *ParseTextFamily(flags_.family);
  if (directory() == nullptr) throw UsageError("required flag missing: --family (or a MODEL)");
  return TextFamilyOf(directory()->manifest().arch.family);
}

const Tokenizer& TextParts::tokenizer() {
  if (tokenizer_) return *tokenizer_;
  if (!flags_.tokenizer.empty()) {
    // A file to look into, not a model to run: ids that contradict each other are shown as they
    // are.
    tokenizer_ = Tokenizer::Load(std::filesystem::is_directory(flags_.tokenizer)
                                     ? flags_.tokenizer / "tokenizer.json"
                                     : flags_.tokenizer,
                                 IdConflicts::kFollowReference);
  } else if (const ModelDirectory* model = directory()) {
    tokenizer_ =
        Tokenizer::FromJson(model->ReadSidecar("tokenizer.json", Tokenizer::kMaxFileBytes),
                            (model->path() / kTokenizerDirectory / "tokenizer.json").string());
  } else {
    throw UsageError("required flag missing: --tokenizer (or a MODEL)");
  }
  return *tokenizer_;
}

std::optional<std::string> TextParts::template_source() {
  if (!flags_.chat_template.empty()) {
    return ReadTextFile(flags_.chat_template, jinja::Template::kMaxSourceBytes);
  }
  const ModelDirectory* model = directory();
  return model == nullptr ? std::nullopt : ReadChatTemplate(*model);
}

PromptRenderer TextParts::MakeRenderer() {
  return PromptRenderer::Load(family(), template_source().value_or(""),
                              std::string(BosSpelling(family())));
}

TokenId TextParts::bos() {
  std::string spelling;
  if (!flags_.family.empty() || flags_.tokenizer.empty()) {
    spelling = BosSpelling(family());
  } else {
    spelling = BosOfConfig(std::filesystem::is_directory(flags_.tokenizer)
                               ? flags_.tokenizer
                               : flags_.tokenizer.parent_path());
  }
  const std::optional<TokenId> id =
      spelling.empty() ? std::nullopt : tokenizer().TokenToId(spelling);
  if (!id) {
    Fail(ErrorCode::kInvalidArgument, "--bos: this model has no beginning-of-sequence token");
  }
  return *id;
}

}  // namespace mference::cli
