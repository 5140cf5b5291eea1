// `mference tokenize`, `render` and `parse`: the text side of a model, one step at a time, for
// tests and scripts.

#include "cli/commands.h"
#include "cli/input.h"
#include "cli/reply_printer.h"
#include "cli/text_parts.h"
#include "text/dialects/parse_command.h"
#include "text/framing/render_command.h"
#include "text/tokenizer/detokenizer.h"

namespace mference::cli {
namespace {

std::string Dump(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

OrderedJson ErrorLine(const Error& error) {
  return {{"error", {{"class", ErrorCodeName(error.code())}, {"message", error.what()}}}};
}

// Answers each line of standard input with a line; what a line does wrong is its answer.
int ForEachLine(Console& console, const std::function<std::string(const std::string&)>& answer) {
  LineReader lines;
  std::string line;
  while (true) {
    const LineStatus status = lines.Next(&line);
    if (status == LineStatus::kEnd) return 0;
    if (status == LineStatus::kInterrupted || Trimmed(line).empty()) continue;
    std::string reply;
    try {
      reply = answer(line);
    } catch (const Error& error) {
      reply = Dump(ErrorLine(error));
    }
    console.Write(reply + "\n");
  }
}

std::vector<TokenId> ReadIds(const JsonReader& list) {
  std::vector<TokenId> ids;
  for (const int64_t id : list.IntArray()) {
    if (id < 0 || id > Tokenizer::kMaxTokenId) list.FailHere(fmt::format("{} is no token id", id));
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

SpecialParsing ParseSpecial(const std::string& text) {
  if (text == "all") return SpecialParsing::kAll;
  if (text == "special") return SpecialParsing::kSpecialOnly;
  if (text == "none") return SpecialParsing::kNone;
  Fail(ErrorCode::kInvalidArgument, "expected all, special or none");
}

// --- tokenize ---

struct TokenizeFlags {
  TextPartsFlags parts;
  SpecialParsing special = SpecialParsing::kAll;
  bool decode = false;
  bool skip_special = false;
  bool bos = false;
  bool jsonl = false;
};

// Text as it would be streamed, one piece per id and one for the flush.
OrderedJson DecodeToJson(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                         bool skip_special) {
  Detokenizer detokenizer(tokenizer, skip_special);
  OrderedJson pieces = OrderedJson::array();
  std::string text;
  const auto release = [&](std::string_view piece) {
    pieces.push_back(piece);
    text += piece;
  };
  for (const TokenId id : ids) release(detokenizer.Push(id));
  release(detokenizer.Flush());
  return {{"text", text}, {"pieces", pieces}};
}

std::string TokenizeLine(const Tokenizer& tokenizer, const TokenizeFlags& flags,
                         std::optional<TokenId> bos, const std::string& line) {
  const Json document = ParseJson(line, "line", ErrorCode::kInvalidArgument);
  const JsonReader request(document, "line", ErrorCode::kInvalidArgument);
  request.RequireObject();
  if (request.Has("ids")) {
    const bool skip =
        request.Has("skip_special") ? request.At("skip_special").Bool() : flags.skip_special;
    return Dump(DecodeToJson(tokenizer, ReadIds(request.At("ids")), skip));
  }
  const SpecialParsing special =
      request.Has("special") ? ParseSpecial(request.At("special").String()) : flags.special;
  std::vector<TokenId> ids = tokenizer.Encode(request.At("text").String(), special);
  if (bos) ids.insert(ids.begin(), *bos);
  return Dump({{"ids", ids}});
}

int Tokenize(const TokenizeFlags& flags, Console& console) {
  TextParts parts(flags.parts);
  const Tokenizer& tokenizer = parts.tokenizer();
  const std::optional<TokenId> bos = flags.bos ? std::optional(parts.bos()) : std::nullopt;
  if (flags.jsonl) {
    return ForEachLine(console, [&](const std::string& line) {
      return TokenizeLine(tokenizer, flags, bos, line);
    });
  }
  const std::string input = ReadInput("-");
  if (flags.decode) {
    const Json document = ParseJson(input, "standard input", ErrorCode::kInvalidArgument);
    const JsonReader list(document, "standard input", ErrorCode::kInvalidArgument);
    console.Write(tokenizer.Decode(ReadIds(list), flags.skip_special));
    return 0;
  }
  std::vector<TokenId> ids = tokenizer.Encode(input, flags.special);
  if (bos) ids.insert(ids.begin(), *bos);
  console.Write(Dump(ids) + "\n");
  return 0;
}

// --- render ---

struct RenderFlags {
  TextPartsFlags parts;
  std::string first;   // MODEL, or MESSAGES where the model's parts are given
  std::string second;  // MESSAGES
  std::filesystem::path tools;
  PromptOptions options;
  bool no_generation_prompt = false;
  bool ids = false;
  bool jsonl = false;
};

std::string PromptWithIds(const Tokenizer& tokenizer, const Prompt& prompt) {
  OrderedJson shown = OrderedJson::array();
  std::vector<TextSpan> spans;
  for (const PromptSpan& span : prompt.spans) {
    const std::string_view text =
        std::string_view(prompt.text).substr(span.begin, span.end - span.begin);
    spans.push_back({text, span.trusted});
    shown.push_back({{"text", text}, {"special", span.trusted}});
  }
  return Dump({{"ids", tokenizer.Encode(spans)}, {"spans", shown}});
}

int Render(RenderFlags flags, Console& console) {
  const bool takes_model = flags.jsonl || !flags.second.empty() || !flags.parts.has_parts();
  if (takes_model) flags.parts.model = flags.first;
  const std::string messages_file = takes_model ? flags.second : flags.first;
  if (flags.jsonl) {
    if (!messages_file.empty()) {
      throw UsageError(fmt::format("unexpected argument: {}", messages_file));
    }
    // Lines may bring templates of their own.
    const bool bare = flags.parts.model.empty() && !flags.parts.has_parts();
    const JsonlRenderer renderer(bare ? std::nullopt : TextParts(flags.parts).template_source(),
                                 flags.options.now);
    return ForEachLine(console, [&](const std::string& line) { return renderer.RenderLine(line); });
  }
  TextParts parts(flags.parts);
  flags.options.add_generation_prompt = !flags.no_generation_prompt;
  const std::string messages = ReadInput(messages_file.empty() ? "-" : messages_file);
  const std::string tools = flags.tools.empty() ? "" : ReadInput(flags.tools);
  const PromptRenderer renderer = parts.MakeRenderer();
  const Prompt prompt = RenderConversation(
      renderer, {.messages_json = messages, .tools_json = tools, .options = flags.options});
  console.Write(flags.ids ? PromptWithIds(parts.tokenizer(), prompt) + "\n" : prompt.text);
  return 0;
}

void AddSetOption(CLI::App& command, RenderFlags& flags) {
  AddParsed(
      command, "--set", "KEY=VALUE", "A template variable; VALUE is JSON where it parses",
      [&flags](const std::string& text) {
        const size_t equals = text.find('=');
        if (equals == 0 || equals == std::string::npos) {
          Fail(ErrorCode::kInvalidArgument, "expected KEY=VALUE");
        }
        const std::string key = text.substr(0, equals);
        const jinja::Value value = ParseSetValue(std::string_view(text).substr(equals + 1));
        // The two that the framing itself understands.
        if (key == "enable_thinking") {
          if (!value.IsBool()) Fail(ErrorCode::kInvalidArgument, "expected true or false");
          flags.options.enable_thinking = value.boolean();
        } else if (key == "reasoning_effort") {
          if (!value.IsString()) Fail(ErrorCode::kInvalidArgument, "expected a level's name");
          flags.options.reasoning_effort = value.text();
        } else {
          flags.options.extra.emplace_back(key, value);
        }
      },
      /*repeatable=*/true);
}

// --- parse ---

struct ParseFlags {
  TextPartsFlags parts;
  std::filesystem::path tools;
  std::string start;
  std::string end;
  bool jsonl = false;
};

// A reply as text, cut where a marker is spelled.
Json SplitAtMarkers(TextFamily family, std::string_view text) {
  Json items = Json::array();
  size_t begin = 0;
  size_t at = 0;
  const auto flush = [&](size_t end) {
    if (end > begin) items.push_back(text.substr(begin, end - begin));
  };
  while (at < text.size()) {
    const auto markers = DialectMarkers(family);
    const auto found = std::find_if(
        markers.begin(), markers.end(),
        [&](const MarkerSpelling& marker) { return text.substr(at).starts_with(marker.spelling); });
    if (found == markers.end()) {
      ++at;
      continue;
    }
    flush(at);
    items.push_back({{"marker", found->spelling}});
    at += found->spelling.size();
    begin = at;
  }
  flush(at);
  return items;
}

int Parse(const ParseFlags& flags, Console& console) {
  TextParts parts(flags.parts);
  const TextFamily family = parts.family();
  if (flags.jsonl) {
    return ForEachLine(console, [family](const std::string& line) {
      // As deep as arguments may be, and the request around them.
      constexpr size_t kMaxDepth = 80;
      return Dump(ParseRecordedReply(
          family, ParseJson(line, "line", ErrorCode::kInvalidArgument, kMaxDepth)));
    });
  }
  Json request = {{"items", SplitAtMarkers(family, ReadInput("-"))}};
  if (!flags.tools.empty()) {
    request["tools"] =
        ParseJson(ReadInput(flags.tools), flags.tools.string(), ErrorCode::kInvalidArgument);
  }
  if (!flags.start.empty()) request["start"] = flags.start;
  if (!flags.end.empty()) request["end"] = flags.end;
  const OrderedJson reply = ParseRecordedReply(family, request);
  console.Write(Dump(reply) + "\n");
  return reply.contains("error") ? 1 : 0;
}

}  // namespace

void AddTokenizeCommand(CommandSet& commands) {
  const auto flags = std::make_shared<TokenizeFlags>();
  CLI::App& command =
      commands.Add("tokenize", "Text on standard input to JSON ids, or back with --decode",
                   [flags](Console& console) { return Tokenize(*flags, console); });
  AddPositional(command, "MODEL", "An installed model's name or path, unless --tokenizer is given",
                flags->parts.model);
  flags->parts.Declare(command, /*with_tokenizer=*/true, /*with_template=*/false);
  AddParsed(
      command, "--special", "WHICH",
      "Added tokens recognised in the text: all (default), special or none",
      [flags = flags.get()](const std::string& text) { flags->special = ParseSpecial(text); });
  AddSwitch(command, "--bos", "Begin with the beginning-of-sequence token", flags->bos);
  AddSwitch(command, "--decode", "JSON ids on standard input to text", flags->decode);
  AddSwitch(command, "--skip-special", "Leave control tokens out of decoded text",
            flags->skip_special);
  AddSwitch(command, "--jsonl", "A JSON object per line in, one per line out", flags->jsonl);
}

void AddRenderCommand(CommandSet& commands) {
  const auto flags = std::make_shared<RenderFlags>();
  flags->options.now = LocalTime();
  CLI::App& command = commands.Add("render", "A conversation as the model will be shown it",
                                   [flags](Console& console) { return Render(*flags, console); });
  AddPositional(command, "MODEL",
                "An installed model's name or path; left out where --template or --family is given",
                flags->first);
  AddPositional(command, "MESSAGES", "A JSON file of messages; - or nothing is standard input",
                flags->second);
  flags->parts.Declare(command, /*with_tokenizer=*/true, /*with_template=*/true);
  AddPath(command, "--tools", "FILE", "JSON array of tool declarations", flags->tools);
  AddSwitch(command, "--no-generation-prompt", "Do not open the reply's turn",
            flags->no_generation_prompt);
  AddSetOption(command, *flags);
  AddParsed(command, "--now", "TIME", "The template's clock, as 2026-01-02T03:04:05",
            [flags = flags.get()](const std::string& text) {
              flags->options.now = ParsePinnedTime(text);
            });
  AddSwitch(command, "--ids", "JSON: the token ids, and which spans are the template's",
            flags->ids);
  AddSwitch(command, "--jsonl", "A JSON object per line in, one per line out", flags->jsonl);
}

void AddParseCommand(CommandSet& commands) {
  const auto flags = std::make_shared<ParseFlags>();
  CLI::App& command =
      commands.Add("parse", "A model's reply on standard input, split into reasoning, text, calls",
                   [flags](Console& console) { return Parse(*flags, console); });
  AddPositional(command, "MODEL", "An installed model's name or path, unless --family is given",
                flags->parts.model);
  flags->parts.Declare(command, /*with_tokenizer=*/false, /*with_template=*/false);
  AddPath(command, "--tools", "FILE", "JSON array of the tools that were declared", flags->tools);
  AddText(command, "--start", "WHERE", "content, reasoning or message_model", flags->start);
  AddText(command, "--end", "TOKEN", "The token that ended the reply, or length", flags->end);
  AddSwitch(command, "--jsonl", "A JSON object per line in, one per line out", flags->jsonl);
}

}  // namespace mference::cli
