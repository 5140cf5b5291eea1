#include "text/dialects/json_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"

namespace mference {

void AppendJsonEscaped(std::string_view text, std::string* out) {
  for (const char c : text) {
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\b':
        *out += "\\b";
        break;
      case '\f':
        *out += "\\f";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          *out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          *out += c;
        }
    }
  }
}

std::string DecodeJsonString(std::string_view quoted) {
  return ParseJson(quoted, "string", ErrorCode::kInternal).get<std::string>();
}

void JsonText::Separate() {
  if (open_.empty() || open_.back().object) return;
  if (open_.back().elements++ > 0) text_ += ',';
}

void JsonText::BeginObject() {
  Separate();
  text_ += '{';
  open_.push_back({.object = true, .elements = 0, .member = {}, .member_begin = {}});
}

void JsonText::EndObject() {
  text_ += '}';
  open_.pop_back();
}

void JsonText::BeginArray() {
  Separate();
  text_ += '[';
  open_.emplace_back();
}

void JsonText::EndArray() {
  text_ += ']';
  open_.pop_back();
}

bool JsonText::Key(std::string_view key) {
  Container& object = open_.back();
  if (object.elements++ > 0) text_ += ',';
  const size_t index = object.member_begin.size();
  object.member_begin.push_back(text_.size());
  text_ += '"';
  AppendJsonEscaped(key, &text_);
  text_ += "\":";
  const auto [found, fresh] = object.member.try_emplace(std::string(key), index);
  if (fresh) return true;
  // From the earlier member's key up to its successor's, comma included: there always is a
  // successor, if only this member.
  superseded_.emplace_back(object.member_begin[found->second],
                           object.member_begin[found->second + 1]);
  found->second = index;
  return false;
}

void JsonText::String(std::string_view value) {
  OpenString();
  StringPart(value);
  CloseString();
}

void JsonText::OpenString() {
  Separate();
  text_ += '"';
}

void JsonText::StringPart(std::string_view part) { AppendJsonEscaped(part, &text_); }

void JsonText::CloseString() { text_ += '"'; }

void JsonText::Literal(std::string_view text) {
  Separate();
  text_ += text;
}

std::string JsonText::Resolved(size_t begin, size_t end) const {
  std::vector<std::pair<size_t, size_t>> ranges = superseded_;
  std::sort(ranges.begin(), ranges.end());
  std::string out;
  size_t from = begin;
  for (const auto& [range_begin, range_end] : ranges) {
    if (range_begin < begin || range_end > end) continue;
    if (range_begin > from) out.append(text_, from, range_begin - from);
    from = std::max(from, range_end);
  }
  out.append(text_, from, end - from);
  return out;
}

}  // namespace mference
