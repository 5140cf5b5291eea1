// `mference logits` and `perplexity`: what the model computes for given tokens, for tests and
// comparisons.

#include <algorithm>
#include <cmath>

#include "base/sha256.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/interrupts.h"
#include "cli/load_flags.h"
#include "format/safetensors_writer.h"

namespace mference::cli {
namespace {

using Sequences = std::vector<std::vector<int32_t>>;

struct ScoreFlags {
  LoadFlags load;
  std::filesystem::path tokens;
  std::filesystem::path out;
  std::filesystem::path trace;
  std::optional<int64_t> decode_from;
  std::optional<int64_t> snapshot_at;
};

using TakeLogits = std::function<void(size_t position, std::span<const float>)>;

// An array of arrays of ids.
Sequences ReadSequences(const std::filesystem::path& path) {
  if (path.empty()) throw UsageError("required flag missing: --tokens");
  const std::string name = path == "-" ? "standard input" : path.string();
  const Json document = ParseJson(ReadInput(path), name, ErrorCode::kInvalidArgument);
  const JsonReader list(document, name, ErrorCode::kInvalidArgument);
  Sequences sequences;
  for (size_t i = 0; i < list.ArraySize(); ++i) {
    const JsonReader ids = list.At(i);
    std::vector<int32_t>& sequence = sequences.emplace_back();
    for (const int64_t id : ids.IntArray()) {
      if (id < 0 || id > INT32_MAX) ids.FailHere(fmt::format("{} is no token id", id));
      sequence.push_back(static_cast<int32_t>(id));
    }
    if (sequence.empty()) ids.FailHere("expected at least one id, found none");
  }
  if (sequences.empty()) list.FailHere("expected at least one sequence, found none");
  return sequences;
}

std::unique_ptr<LoadedModel> LoadForScoring(const ScoreFlags& flags, const Sequences& sequences) {
  size_t longest = 0;
  for (const auto& sequence : sequences) longest = std::max(longest, sequence.size());
  std::unique_ptr<LoadedModel> loaded = LoadFromFlags(flags.load, static_cast<int64_t>(longest));
  if (static_cast<int64_t>(longest) > loaded->session().context()) {
    Fail(ErrorCode::kContextFull, "a sequence has {} tokens, but the context holds {}", longest,
         loaded->session().context());
  }
  for (const auto& sequence : sequences) {
    for (const int32_t id : sequence) {
      if (id >= loaded->model().vocab_size()) {
        Fail(ErrorCode::kInvalidArgument, "token id {} is outside the vocabulary of {}", id,
             loaded->model().vocab_size());
      }
    }
  }
  loaded->directory().FinishVerification();
  return loaded;
}

// Runs the positions [begin, end) of a sequence whose state holds those before, in chunks up to
// position `decode_from` and one token at a time after it, and hands out the logits [vocab] of
// every position in order.
void ScorePositions(LoadedModel& loaded, std::span<const int32_t> ids, int64_t begin, int64_t end,
                    int64_t decode_from, const TakeLogits& take) {
  Model& model = loaded.model();
  const auto vocab = static_cast<size_t>(model.vocab_size());
  while (begin < end) {
    ThrowIfCancelled();
    const int64_t left = begin < decode_from ? std::min(decode_from, end) - begin : 1;
    const auto rows = static_cast<int32_t>(std::min<int64_t>(left, loaded.plan().chunk_rows));
    model.Forward(ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(rows)),
                  loaded.session().state());
    for (int32_t first = 0; first < rows; first += Backend::kMaxLogitsRows) {
      const int32_t piece = std::min(rows - first, Backend::kMaxLogitsRows);
      const std::span<const float> logits = model.Logits(first, piece);
      for (int32_t row = 0; row < piece; ++row) {
        take(static_cast<size_t>(begin + first + row),
             logits.subspan(static_cast<size_t>(row) * vocab, vocab));
      }
    }
    begin += rows;
  }
}

// The whole sequence from an empty state.
void ScoreSequence(LoadedModel& loaded, std::span<const int32_t> ids, int64_t decode_from,
                   const TakeLogits& take) {
  loaded.session().Reset();
  ScorePositions(loaded, ids, 0, static_cast<int64_t>(ids.size()), decode_from, take);
}

// The same with a step that ends at `snapshot_at`. What follows is computed twice, the second time
// from a snapshot taken there; throws kInternal unless both give the same bytes.
void ScoreAcrossSnapshot(LoadedModel& loaded, std::span<const int32_t> ids, int64_t decode_from,
                         int64_t snapshot_at, const TakeLogits& take) {
  SequenceState& state = loaded.session().state();
  const auto end = static_cast<int64_t>(ids.size());
  const auto digest = [](std::span<const float> logits) {
    Sha256 hash;
    hash.Update(std::as_bytes(logits));
    return hash.FinishHex();
  };
  loaded.session().Reset();
  ScorePositions(loaded, ids, 0, snapshot_at, decode_from, take);
  const StateSnapshot snapshot = state.Snapshot(loaded.ledger());
  std::vector<std::string> digests;
  ScorePositions(loaded, ids, snapshot_at, end, decode_from,
                 [&](size_t position, std::span<const float> logits) {
                   digests.push_back(digest(logits));
                   take(position, logits);
                 });
  state.Restore(snapshot);
  ScorePositions(
      loaded, ids, snapshot_at, end, decode_from,
      [&](size_t position, std::span<const float> logits) {
        if (digest(logits) == digests[position - static_cast<size_t>(snapshot_at)]) return;
        Fail(ErrorCode::kInternal,
             "logits of position {} differ after going back to a snapshot of position {}: "
             "this is a defect of mference, please report it",
             position, snapshot_at);
      });
}

int Logits(const ScoreFlags& flags, Console&) {
  if (flags.out.empty()) throw UsageError("required flag missing: --out");
  const Sequences sequences = ReadSequences(flags.tokens);
  const InterruptScope interrupts(InterruptMode::kCancel);
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (flags.snapshot_at.value_or(0) < static_cast<int64_t>(sequences[i].size())) continue;
    Fail(ErrorCode::kInvalidArgument,
         "--snapshot-at is {}, but sequence {} has {} tokens: the position must lie inside of it",
         *flags.snapshot_at, i, sequences[i].size());
  }
  const std::unique_ptr<LoadedModel> loaded = LoadForScoring(flags, sequences);
  const auto vocab = static_cast<uint64_t>(loaded->model().vocab_size());
  std::vector<SafetensorsSpec> tensors;
  for (size_t i = 0; i < sequences.size(); ++i) {
    tensors.push_back({.name = fmt::format("seq{}.logits", i),
                       .dtype = DType::kF32,
                       .shape = {sequences[i].size(), vocab}});
  }
  SafetensorsWriter writer(flags.out, tensors);
  const std::unique_ptr<TraceRecorder> trace = StartTrace(flags.trace, *loaded);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const int64_t decode_from = flags.decode_from.value_or(INT64_MAX);
    const auto write = [&](size_t, std::span<const float> logits) {
      writer.Append(i, std::as_bytes(logits));
    };
    if (flags.snapshot_at) {
      ScoreAcrossSnapshot(*loaded, sequences[i], decode_from, *flags.snapshot_at, write);
    } else {
      ScoreSequence(*loaded, sequences[i], decode_from, write);
    }
  }
  writer.Finish();
  if (trace) trace->Write();
  return 0;
}

// -log softmax(logits)[id], accumulated in double.
double NegativeLogLikelihood(std::span<const float> logits, int32_t id) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float value : logits) sum += std::exp(value - largest);
  return std::log(sum) - (logits[static_cast<size_t>(id)] - largest);
}

int Perplexity(const ScoreFlags& flags, Console& console) {
  const Sequences sequences = ReadSequences(flags.tokens);
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i].size() >= 2) continue;
    Fail(ErrorCode::kInvalidArgument, "sequence {} has one token: nothing to predict", i);
  }
  const InterruptScope interrupts(InterruptMode::kCancel);
  const std::unique_ptr<LoadedModel> loaded = LoadForScoring(flags, sequences);
  const std::unique_ptr<TraceRecorder> trace = StartTrace(flags.trace, *loaded);
  double total = 0;
  size_t predicted = 0;
  Json lines = Json::array();
  for (size_t i = 0; i < sequences.size(); ++i) {
    const std::vector<int32_t>& ids = sequences[i];
    double sum = 0;
    ScoreSequence(*loaded, ids, flags.decode_from.value_or(INT64_MAX),
                  [&](size_t position, std::span<const float> logits) {
                    if (position + 1 < ids.size()) {
                      sum += NegativeLogLikelihood(logits, ids[position + 1]);
                    }
                  });
    const size_t count = ids.size() - 1;
    const double perplexity = std::exp(sum / static_cast<double>(count));
    if (!flags.load.json) console.Print("seq{}: {:.4f} over {} tokens\n", i, perplexity, count);
    lines.push_back({{"perplexity", perplexity}, {"nll", sum}, {"tokens", count}});
    total += sum;
    predicted += count;
  }
  if (trace) trace->Write();
  const double overall = std::exp(total / static_cast<double>(predicted));
  if (flags.load.json) {
    console.Print(
        "{}\n",
        Json{{"sequences", lines}, {"perplexity", overall}, {"nll", total}, {"tokens", predicted}}
            .dump());
  } else {
    console.Print("all: {:.4f} over {} tokens\n", overall, predicted);
  }
  return 0;
}

void DeclareScoreFlags(CLI::App& command, ScoreFlags& flags) {
  flags.load.Declare(command);
  AddPath(command, "--tokens", "IDS.json", "JSON array of arrays of token ids; - is standard input",
          flags.tokens);
  AddParsed(command, "--chunk", "N", "Tokens per step (another name for --prefill-chunk)",
            [&flags](const std::string& text) {
              flags.load.options.chunk_rows = static_cast<int32_t>(ParseInteger(text, 1, 4096));
            });
  AddTraceFlag(command, flags.trace);
  AddInteger(command, "--decode-from", "K", "Feed tokens from this position one at a time",
             flags.decode_from, 0);
}

}  // namespace

void AddLogitsCommand(CommandSet& commands) {
  const auto flags = std::make_shared<ScoreFlags>();
  CLI::App& command = commands.Add("logits", "Logits of given tokens, as a safetensors file",
                                   [flags](Console& console) { return Logits(*flags, console); });
  flags->load.options.precise = true;  // always: these are compared with references
  DeclareScoreFlags(command, *flags);
  AddInteger(command, "--snapshot-at", "K",
             "Snapshot the state at this position, go on, go back to it and go on again; fails "
             "unless the logits are the same",
             flags->snapshot_at, 0);
  AddPath(command, "--out", "FILE", "Gets seq0.logits, seq1.logits, ..., each F32 [tokens, vocab]",
          flags->out);
}

void AddPerplexityCommand(CommandSet& commands) {
  const auto flags = std::make_shared<ScoreFlags>();
  CLI::App& command =
      commands.Add("perplexity", "Perplexity of given token sequences, each from an empty context",
                   [flags](Console& console) { return Perplexity(*flags, console); });
  DeclareScoreFlags(command, *flags);
}

}  // namespace mference::cli
