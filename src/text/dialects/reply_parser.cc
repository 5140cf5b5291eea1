#include "text/dialects/reply_parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/dialects/literal_reader.h"

namespace mference {
namespace {

constexpr std::string_view kStringDelimiter = "<|\"|>";
constexpr size_t kExcerptBytes = 160;
constexpr size_t kExcerptBefore = 60;

// The length of call text in the reply, where a delimiter is a token and not one byte.
size_t SpelledLength(std::string_view call_text) {
  const auto delimiters =
      static_cast<size_t>(std::count(call_text.begin(), call_text.end(), kStringDelimiterByte));
  return call_text.size() + delimiters * (kStringDelimiter.size() - 1);
}

std::string Spell(std::string_view call_text) {
  std::string spelled;
  for (const char c : call_text) {
    if (c == kStringDelimiterByte) {
      spelled += kStringDelimiter;
    } else {
      spelled += c;
    }
  }
  return spelled;
}

// The text around `offset`, which is what a person needs to see of a long call.
std::string Excerpt(std::string_view text, size_t offset) {
  offset = std::min(offset, text.size());
  const size_t begin =
      CutAtScalar(text, offset > kExcerptBefore ? offset - kExcerptBefore : 0).size();
  constexpr size_t kScalarBytes = 4;  // what the last cut may break lies beyond the first
  return std::string(
      CutAtScalar(Spell(text.substr(begin, kExcerptBytes + kScalarBytes)), kExcerptBytes));
}

}  // namespace

bool IsToolName(std::string_view name) {
  constexpr size_t kMaxNameBytes = 64;
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-' || c == '.';
         });
}

bool IsAsciiSpace(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}

std::string_view TrimAsciiSpace(std::string_view text) {
  while (!text.empty() && IsAsciiSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsAsciiSpace(text.back())) text.remove_suffix(1);
  return text;
}

ReplyParser::ReplyParser(DialectOptions options)
    : options_(std::move(options)), writer_(!options_.tools.empty()) {
  for (const DialectTool& tool : options_.tools) tools_[tool.name] = &tool;
}

bool ReplyParser::Push(Marker marker, std::string_view text, std::vector<DialectEvent>* events) {
  if (failure_) return false;
  writer_.Attach(events);
  const auto on_text = [this](const std::string& scalars) {
    if (scalars.empty() || failure_) return;
    OnText(scalars);
    position_ += scalars.size();
  };
  if (marker == Marker::kText) {
    on_text(repair_.Push(text));
  } else {
    on_text(repair_.Flush());
    if (!failure_) {
      OnMarker(marker, text);
      position_ += text.size();
    }
  }
  return !failure_;
}

bool ReplyParser::Finish(ReplyEnd end, std::vector<DialectEvent>* events) {
  if (failure_) return false;
  writer_.Attach(events);
  if (const std::string rest = repair_.Flush(); !rest.empty()) {
    OnText(rest);
    position_ += rest.size();
  }
  if (!failure_) OnFinish(end);
  if (failure_) return false;
  writer_.Finish(/*trim_content=*/calls_ > 0 || dropped_);
  if (calls_ > 0) {
    finish_reason_ = FinishReason::kToolCalls;
  } else if (end == ReplyEnd::kLength) {
    finish_reason_ = FinishReason::kLength;
  }
  return true;
}

const DialectTool* ReplyParser::FindTool(std::string_view name) const {
  const auto found = tools_.find(name);
  return found == tools_.end() ? nullptr : found->second;
}

void ReplyParser::OpenCall(size_t position) {
  writer_.OpenCall();
  call_text_.clear();
  call_position_ = position;
  announced_.clear();
  streamed_arguments_ = 0;
}

bool ReplyParser::AppendToCall(std::string_view text, size_t slack) {
  const size_t room = options_.limits.call_bytes + slack - call_text_.size();
  call_text_ += CutAtScalar(text, room);
  return text.size() <= room;
}

void ReplyParser::Announce(std::string_view name) {
  if (!options_.stream_arguments || !announced_.empty()) return;
  if (!IsToolName(name) || FindTool(name) == nullptr) return;
  announced_ = std::string(name);
  writer_.CallStarted(calls_, name);
}

void ReplyParser::StreamArguments(std::string_view so_far) {
  if (announced_.empty() || so_far.size() <= streamed_arguments_) return;
  writer_.CallArguments(calls_, so_far.substr(streamed_arguments_));
  streamed_arguments_ = so_far.size();
}

std::optional<CallProblem> ReplyParser::CheckName(std::string_view name, size_t offset) const {
  if (!IsToolName(name)) {
    return CallProblem{.offset = offset,
                       .note = "the tool's name is not 1 to 64 letters, digits, '_', '-' and '.'"};
  }
  if (FindTool(name) == nullptr) {
    return CallProblem{.failure_class = CallFailure::Class::kUnknownTool,
                       .offset = offset,
                       .note = "the request declares no tool of this name",
                       .tool = std::string(name)};
  }
  return std::nullopt;
}

void ReplyParser::CompleteCall(const ParsedCall& call) {
  if (announced_.empty()) {
    writer_.CallStarted(calls_, call.name);
    writer_.CallArguments(calls_, call.arguments);
  } else {
    StreamArguments(call.streamed);
  }
  writer_.CallCompleted(calls_, call.arguments);
  ++calls_;
  announced_.clear();
  streamed_arguments_ = 0;
}

void ReplyParser::JudgeCall(const ParsedCall& call) {
  if (const auto problem = CheckName(call.name, 0)) return FailInCall(*problem);
  if (!announced_.empty() && announced_ != call.name) {
    return FailInCall({.offset = 0, .note = "the call names two different tools"});
  }
  CompleteCall(call);
}

void ReplyParser::FailInCall(const CallProblem& problem) {
  if (failure_) return;
  const size_t offset = std::min(problem.offset, call_text_.size());
  failure_ = CallFailure{
      .failure_class = problem.failure_class,
      .tool = problem.tool,
      .position = call_position_ + SpelledLength(std::string_view(call_text_).substr(0, offset)),
      .note = problem.note,
      .excerpt = Excerpt(call_text_, offset)};
}

void ReplyParser::FailOversized() {
  FailInCall({.failure_class = CallFailure::Class::kOversized,
              .offset = 0,
              .note = fmt::format("the call is longer than {} bytes", options_.limits.call_bytes)});
}

void ReplyParser::FailAtToken(std::string_view token_text, std::string note) {
  if (failure_) return;
  failure_ = CallFailure{.failure_class = CallFailure::Class::kBadSyntax,
                         .tool = {},
                         .position = position_,
                         .note = std::move(note),
                         .excerpt = Excerpt(token_text, 0)};
}

void ReplyParser::EndInsideCall(ReplyEnd end) {
  if (end == ReplyEnd::kLength) {
    dropped_ = true;
    return;
  }
  FailInCall({.failure_class = CallFailure::Class::kUnclosed,
              .offset = 0,
              .note = "the reply ended before the call was closed"});
}

}  // namespace mference
