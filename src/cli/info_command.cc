// `mference info`: what an installed model is, and how it would run here.

#include <algorithm>

#include "base/units.h"
#include "cli/commands.h"
#include "cli/load_flags.h"
#include "cli/model_argument.h"
#include "format/receipt.h"
#include "model/catalogue.h"

namespace mference::cli {
namespace {

// The receipt, or why it is of no use.
struct ReceiptState {
  std::optional<Receipt> receipt;
  std::string problem;
};

ReceiptState ReadReceipt(const ModelDirectory& directory) {
  const std::filesystem::path path = directory.path() / kReceiptFile;
  ReceiptState state;
  try {
    if (!std::filesystem::exists(path)) return {std::nullopt, "none; `mference verify` writes one"};
    state.receipt = ParseReceipt(ReadTextFile(path, kMaxReceiptBytes), path.string());
  } catch (const Error& error) {
    return {std::nullopt, error.what()};
  }
  state.problem = directory.receipt_problem();
  return state;
}

// "18 sliding, 4 full attention" and so on, in the order of the codes.
std::string DescribeLayers(const ArchConfig& arch) {
  constexpr std::pair<LayerKind, const char*> kKinds[] = {
      {LayerKind::kSlidingWindow, "sliding window"},
      {LayerKind::kFullAttention, "full attention"},
      {LayerKind::kGatedDeltaNet, "gated DeltaNet"},
      {LayerKind::kCompressedSparse, "compressed sparse attention"},
      {LayerKind::kHeavilyCompressed, "heavily compressed attention"}};
  std::string text;
  for (const auto& [kind, name] : kKinds) {
    const auto count = std::count(arch.layer_kinds.begin(), arch.layer_kinds.end(), kind);
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name);
  }
  return text;
}

struct Facts {
  const ModelDirectory& directory;
  uint64_t file_bytes = 0;
  uint64_t expert_bytes = 0;
  ReceiptState receipt;
};

Facts Collect(const ModelDirectory& directory) {
  Facts facts{directory, 0, 0, ReadReceipt(directory)};
  for (const auto& [path, record] : directory.manifest().files) {
    facts.file_bytes += record.size;
    if (path.starts_with(kExpertsDirectory) && path != kLayoutFile) {
      facts.expert_bytes += record.size;
    }
  }
  return facts;
}

std::string Describe(const Facts& facts) {
  const Manifest& manifest = facts.directory.manifest();
  const ArchConfig& arch = manifest.arch;
  const PinnedSource* pinned = FindPinnedByModelId(manifest.model_id);
  std::string text;
  const auto line = [&text](const char* name, const std::string& value) {
    text += fmt::format("{:<16} {}\n", name, value);
  };
  line("name", ModelNameOf(facts.directory.path()));
  line("path", facts.directory.path().string());
  line("model", manifest.model_id + (pinned != nullptr ? "" : " (unpinned)"));
  if (pinned != nullptr) {
    line("source", fmt::format("{} at {}", pinned->repository, pinned->revision));
    line("licence", std::string(pinned->licence));
  }
  line("family", FamilyName(arch.family));
  line("layers", fmt::format("{}: {}", arch.num_layers, DescribeLayers(arch)));
  line("width", fmt::format("{}, vocabulary {}", arch.hidden_size, arch.vocab_size));
  line("experts",
       fmt::format("{} per layer, {} used per token, {} each", manifest.experts_per_layer,
                   arch.top_k_experts, FormatByteCount(manifest.expert_stride)));
  line("size", fmt::format("{}: {} of weights in memory, {} of experts on disk",
                           FormatByteCount(facts.file_bytes),
                           FormatByteCount(facts.directory.resident_index().resident_bytes),
                           FormatByteCount(facts.expert_bytes)));
  const ReceiptState& receipt = facts.receipt;
  line("verified", receipt.problem.empty() && receipt.receipt
                       ? receipt.receipt->verification_timestamp
                       : receipt.problem);
  return text;
}

Json ToJson(const Facts& facts) {
  const Manifest& manifest = facts.directory.manifest();
  const PinnedSource* pinned = FindPinnedByModelId(manifest.model_id);
  Json json = {{"name", ModelNameOf(facts.directory.path())},
               {"path", facts.directory.path().string()},
               {"model_id", manifest.model_id},
               {"pinned", pinned != nullptr},
               {"family", FamilyName(manifest.arch.family)},
               {"layers", manifest.arch.num_layers},
               {"hidden_size", manifest.arch.hidden_size},
               {"vocab_size", manifest.arch.vocab_size},
               {"experts_per_layer", manifest.experts_per_layer},
               {"top_k_experts", manifest.arch.top_k_experts},
               {"expert_bytes", manifest.expert_stride},
               {"file_bytes", facts.file_bytes},
               {"resident_bytes", facts.directory.resident_index().resident_bytes},
               {"all_expert_bytes", facts.expert_bytes}};
  if (facts.receipt.receipt && facts.receipt.problem.empty()) {
    json["verified"] = facts.receipt.receipt->verification_timestamp;
  } else {
    json["receipt_problem"] = facts.receipt.problem;
  }
  return json;
}

int Info(const LoadFlags& flags, Console& console) {
  const std::filesystem::path path = ResolveModelPath(flags.model);
  const ModelDirectory directory = ModelDirectory::Open(
      path, {.policy = VerifyPolicy::kAuto, .resolve = ResolveModel, .defer_hashing = true});
  const Facts facts = Collect(directory);

  // How it would run: asked of the loader itself, so that the answer is what a run would get.
  std::unique_ptr<LoadedModel> loaded;
  std::string refusal;
  try {
    loaded = LoadFromFlags(flags);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfBudget && error.code() != ErrorCode::kUnknownFamily) throw;
    refusal = error.what();
  }
  if (flags.json) {
    Json json = ToJson(facts);
    if (loaded != nullptr) {
      json["kernels"] = loaded->kernel_description();
      json["expert_io"] = loaded->io_description();
      json["context"] = loaded->session().context();
      json["memory_plan"] = MemoryPlanToJson(loaded->plan());
    } else {
      json["cannot_run"] = refusal;
    }
    console.Print("{}\n", json.dump(2));
    return 0;
  }
  console.Write(Describe(facts));
  if (loaded == nullptr) {
    console.Print("{:<16} {}\n", "cannot run", refusal);
    return 0;
  }
  console.Print("{:<16} {}\n{:<16} {}\n{:<16} {} tokens of context\n{}", "kernels",
                loaded->kernel_description(), "expert reads", loaded->io_description(), "memory",
                loaded->session().context(), DescribePlan(loaded->plan()));
  return 0;
}

}  // namespace

void AddInfoCommand(CommandSet& commands) {
  const auto flags = std::make_shared<LoadFlags>();
  CLI::App& command = commands.Add("info", "What a model is, and how it would run on this machine",
                                   [flags](Console& console) { return Info(*flags, console); });
  flags->Declare(command);
}

}  // namespace mference::cli
