#include "format/json_writer.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/error.h"

namespace mference {
namespace {

constexpr size_t kFlushBytes = 64 * 1024;

}  // namespace

JsonWriter::JsonWriter(TextSink sink, Style style) : sink_(std::move(sink)), style_(style) {}

void JsonWriter::Put(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() >= kFlushBytes) {
    sink_(buffer_);
    buffer_.clear();
  }
}

void JsonWriter::NewLine() {
  if (style_ == Style::kCompact) return;
  Put("\n");
  for (size_t i = 0; i < has_items_.size(); ++i) Put("  ");
}

void JsonWriter::BeforeValue() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (has_items_.empty()) return;
  if (has_items_.back()) Put(",");
  has_items_.back() = true;
  NewLine();
}

void JsonWriter::BeginObject() {
  BeforeValue();
  Put("{");
  has_items_.push_back(false);
}

void JsonWriter::BeginArray() {
  BeforeValue();
  Put("[");
  has_items_.push_back(false);
}

void JsonWriter::EndObject() {
  const bool had_items = has_items_.back();
  has_items_.pop_back();
  if (had_items) NewLine();
  Put("}");
}

void JsonWriter::EndArray() {
  const bool had_items = has_items_.back();
  has_items_.pop_back();
  if (had_items) NewLine();
  Put("]");
}

void JsonWriter::Key(std::string_view key) {
  String(key);
  Put(style_ == Style::kCompact ? ":" : ": ");
  after_key_ = true;
}

void JsonWriter::String(std::string_view utf8) {
  BeforeValue();
  std::string quoted = "\"";
  for (const char c : utf8) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      quoted += c;
    }
  }
  quoted += '"';
  Put(quoted);
}

void JsonWriter::Int(int64_t value) {
  BeforeValue();
  Put(fmt::format_int(value).c_str());
}

void JsonWriter::Uint(uint64_t value) {
  BeforeValue();
  Put(fmt::format_int(value).c_str());
}

void JsonWriter::Double(double value) {
  Check(std::isfinite(value), "JSON cannot hold a number that is not finite");
  BeforeValue();
  Put(fmt::format("{}", value));
}

void JsonWriter::Bool(bool value) {
  BeforeValue();
  Put(value ? "true" : "false");
}

void JsonWriter::Finish() {
  Check(has_items_.empty() && !after_key_, "a JSON document was finished inside a container");
  Put("\n");
  sink_(buffer_);
  buffer_.clear();
}

}  // namespace mference
