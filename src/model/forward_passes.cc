#include "model/forward_passes.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "model/gemma4/forward.h"
#include "model/qwen36/forward.h"

namespace mference {
namespace {

struct ForwardPass {
  Family family;
  std::unique_ptr<Model> (*make)(const ModelSources& sources);
};

constexpr ForwardPass kForwardPasses[] = {
    {Family::kGemma4, gemma4::MakeGemma4},
    {Family::kQwen36, qwen36::MakeQwen36},
};

}  // namespace

bool HasForwardPass(Family family) {
  for (const ForwardPass& pass : kForwardPasses) {
    if (pass.family == family) return true;
  }
  return false;
}

std::unique_ptr<Model> MakeModel(const ModelSources& sources) {
  std::string known;
  for (const ForwardPass& pass : kForwardPasses) {
    if (pass.family == sources.arch.family) return pass.make(sources);
    known += fmt::format("{}{}", known.empty() ? "" : ", ", FamilyName(pass.family));
  }
  Fail(ErrorCode::kUnknownFamily,
       "models of the family {} can be installed but not run (these can: {})",
       FamilyName(sources.arch.family), known);
}

int64_t MaxContext(const ArchConfig&, const JsonReader& config) {
  const JsonReader text = config.Has("text_config") ? config.At("text_config") : config;
  // Fits every position type in the kernels.
  constexpr int64_t kLargest = int64_t{1} << 24;
  return text.Has("max_position_embeddings")
             ? std::min(text.At("max_position_embeddings").Int(), kLargest)
             : kLargest;
}

}  // namespace mference
