#include "text/dialects/dsml.h"

#include "text/dialects/reply_parser.h"

namespace mference {
namespace {

constexpr size_t kMaxTagBytes = 4096;
constexpr std::string_view kBar = "DSML｜";

// Of `text` that may be the beginning of `whole`, or the other way round.
bool MayBegin(std::string_view text, std::string_view whole) { return whole.starts_with(text); }

DsmlTag Broken(DsmlTag tag, const char* note) {
  tag.status = DsmlTag::Status::kBroken;
  tag.note = note;
  return tag;
}

DsmlTag Incomplete(DsmlTag tag, std::string_view text) {
  if (text.size() > kMaxTagBytes) return Broken(std::move(tag), "a tag is too long");
  tag.status = DsmlTag::Status::kIncomplete;
  return tag;
}

bool IsAttributeChar(char c) { return c >= 'a' && c <= 'z'; }

// The attributes and the `>` of an opening tag, from byte `at` of `text` on.
DsmlTag ReadAttributes(std::string_view text, size_t at, DsmlTag tag) {
  while (true) {
    while (at < text.size() && IsAsciiSpace(text[at])) ++at;
    if (at == text.size()) return Incomplete(std::move(tag), text);
    if (text[at] == '>') {
      tag.size = at + 1;
      tag.status = DsmlTag::Status::kComplete;
      return tag;
    }
    const size_t key_begin = at;
    while (at < text.size() && IsAttributeChar(text[at])) ++at;
    const std::string_view key = text.substr(key_begin, at - key_begin);
    if (at == text.size()) return Incomplete(std::move(tag), text);
    if (key.empty() || text[at] != '=') {
      return Broken(std::move(tag), "expected an attribute, KEY=\"VALUE\", or the end of the tag");
    }
    if (++at == text.size()) return Incomplete(std::move(tag), text);
    const char quote = text[at];
    if (quote != '"' && quote != '\'') {
      return Broken(std::move(tag), "an attribute's value is not quoted");
    }
    const size_t value_begin = at + 1;
    const size_t value_end = text.find(quote, value_begin);
    // A missing quote must not swallow the tags that follow.
    const std::string_view value = text.substr(value_begin, value_end - value_begin);
    if (value.find('\n') != std::string_view::npos || value.find(kBar) != std::string_view::npos) {
      return Broken(std::move(tag), "an attribute's quotes are not closed");
    }
    if (value_end == std::string_view::npos) return Incomplete(std::move(tag), text);
    at = value_end + 1;
    std::optional<std::string>* attribute = nullptr;
    if (key == "name") attribute = &tag.name;
    if (key == "string") attribute = &tag.string;
    if (attribute == nullptr) continue;
    if (attribute->has_value()) return Broken(std::move(tag), "an attribute is repeated");
    *attribute = std::string(value);
  }
}

}  // namespace

DsmlTag ReadDsmlTag(std::string_view text) {
  DsmlTag tag;
  bool incomplete = false;
  size_t at = 0;
  for (const std::string_view form : {kDsmlOpen, kDsmlClose, kDsmlDamagedOpen, kDsmlDamagedClose}) {
    if (text.starts_with(form)) {
      at = form.size();
      tag.closing = text[1] == '/';
    } else if (MayBegin(text, form)) {
      incomplete = true;
    }
  }
  if (at == 0) {
    if (incomplete) tag.status = DsmlTag::Status::kIncomplete;
    return tag;
  }
  const std::string_view rest = text.substr(at);
  constexpr std::pair<std::string_view, DsmlTag::Element> kElements[] = {
      {kDsmlCalls, DsmlTag::Element::kCalls},
      {kDsmlInvoke, DsmlTag::Element::kInvoke},
      {kDsmlParameter, DsmlTag::Element::kParameter}};
  for (const auto& [name, element] : kElements) {
    if (MayBegin(rest, name) && rest.size() <= name.size()) {
      tag.status = DsmlTag::Status::kIncomplete;
      return tag;
    }
    if (!rest.starts_with(name)) continue;
    tag.element = element;
    const char next = rest[name.size()];
    at += name.size();
    if (next == '>') {
      tag.size = at + 1;
      tag.status = DsmlTag::Status::kComplete;
    } else if (IsAsciiSpace(next) && !tag.closing && element != DsmlTag::Element::kCalls) {
      return ReadAttributes(text, at, std::move(tag));
    }
    return tag;
  }
  return tag;
}

}  // namespace mference
