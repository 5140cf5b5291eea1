#include "constrain/schema_compiler.h"

#include <algorithm>
#include <unordered_map>

#include "constrain/number_range.h"
#include "constrain/pattern.h"
#include "constrain/schema_keywords.h"
#include "constrain/text_automata.h"
#include "text/dialects/json_text.h"

namespace mference {
namespace {

using Branch = SchemaCompiler::Branch;
using Kind = Branch::Kind;

constexpr size_t kMaxReferences = 64;  // one inside the other, without an object or array between
constexpr size_t kMaxExpanded = 100'000;
constexpr int kMaxForks = 64;  // of given values that begin alike: bounds the recursion

const OrderedJson& AnySchema() {
  static const OrderedJson any = OrderedJson::object();
  return any;
}

std::optional<Kind> ParseType(std::string_view name) {
  constexpr std::pair<std::string_view, Kind> kTypes[] = {
      {"object", Kind::kObject}, {"array", Kind::kArray},     {"string", Kind::kString},
      {"number", Kind::kNumber}, {"integer", Kind::kInteger}, {"boolean", Kind::kBoolean},
      {"null", Kind::kNull}};
  for (const auto& [known, kind] : kTypes) {
    if (known == name) return kind;
  }
  return std::nullopt;
}

// What a schema without `type` is about: the types its keywords restrict, else any.
std::vector<Kind> ImpliedTypes(const OrderedJson& schema) {
  constexpr std::pair<std::string_view, Kind> kAbout[] = {{"properties", Kind::kObject},
                                                          {"required", Kind::kObject},
                                                          {"additionalProperties", Kind::kObject},
                                                          {"items", Kind::kArray},
                                                          {"prefixItems", Kind::kArray},
                                                          {"minItems", Kind::kArray},
                                                          {"maxItems", Kind::kArray},
                                                          {"minLength", Kind::kString},
                                                          {"maxLength", Kind::kString},
                                                          {"pattern", Kind::kString},
                                                          {"minimum", Kind::kNumber},
                                                          {"maximum", Kind::kNumber},
                                                          {"exclusiveMinimum", Kind::kNumber},
                                                          {"exclusiveMaximum", Kind::kNumber}};
  std::vector<Kind> kinds;
  for (const auto& [keyword, kind] : kAbout) {
    if (schema.contains(keyword) && std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
      kinds.push_back(kind);
    }
  }
  if (!kinds.empty()) return kinds;
  return {Kind::kObject, Kind::kArray, Kind::kString, Kind::kNumber, Kind::kBoolean, Kind::kNull};
}

// The types of `type`; nullopt where there is none.
std::optional<std::vector<Kind>> DeclaredTypes(const OrderedJson& schema,
                                               const std::string& pointer) {
  const OrderedJson* type = MemberOf(schema, "type");
  if (type == nullptr) return std::nullopt;
  std::vector<Kind> kinds;
  const auto add = [&](const OrderedJson& name) {
    const auto kind =
        name.is_string() ? ParseType(name.get_ref<const std::string&>()) : std::nullopt;
    if (!kind) {
      throw SchemaError(PointerTo(pointer, "type"),
                        fmt::format("{} is no type of JSON Schema", name.dump()));
    }
    if (std::find(kinds.begin(), kinds.end(), *kind) == kinds.end()) kinds.push_back(*kind);
  };
  if (type->is_array()) {
    for (const OrderedJson& name : *type) add(name);
    if (kinds.empty()) throw SchemaError(PointerTo(pointer, "type"), "the list of types is empty");
  } else {
    add(*type);
  }
  return kinds;
}

bool Includes(const std::vector<Kind>& kinds, Kind kind) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

bool IsOfType(const OrderedJson& value, const std::vector<Kind>& kinds) {
  switch (value.type()) {
    case OrderedJson::value_t::object:
      return Includes(kinds, Kind::kObject);
    case OrderedJson::value_t::array:
      return Includes(kinds, Kind::kArray);
    case OrderedJson::value_t::string:
      return Includes(kinds, Kind::kString);
    case OrderedJson::value_t::boolean:
      return Includes(kinds, Kind::kBoolean);
    case OrderedJson::value_t::null:
      return Includes(kinds, Kind::kNull);
    case OrderedJson::value_t::number_integer:
    case OrderedJson::value_t::number_unsigned:
      return Includes(kinds, Kind::kNumber) || Includes(kinds, Kind::kInteger);
    default:
      return Includes(kinds, Kind::kNumber);
  }
}

// Drops the branches that `kinds` do not include.
void Filter(const std::vector<Kind>& kinds, std::vector<Branch>* branches) {
  std::erase_if(*branches, [&](const Branch& branch) {
    if (branch.kind == Kind::kValue) return !IsOfType(*branch.schema, kinds);
    if (branch.kind == Kind::kInteger && Includes(kinds, Kind::kNumber)) return false;
    return !Includes(kinds, branch.kind);
  });
  for (Branch& branch : *branches) {
    if (branch.kind == Kind::kNumber && !Includes(kinds, Kind::kNumber)) {
      branch.kind = Kind::kInteger;
    }
  }
}

}  // namespace

std::vector<Branch> SchemaCompiler::Expand(const OrderedJson& schema, const std::string& pointer) {
  std::vector<Branch> branches;
  ExpandInto(schema, pointer, &branches);
  return branches;
}

void SchemaCompiler::ExpandInto(const OrderedJson& schema, const std::string& pointer,
                                std::vector<Branch>* branches) {
  if (++expanded_ > kMaxExpanded) throw GrammarTooLarge();
  if (schema.is_boolean()) {
    if (!schema.get<bool>()) return;
    for (const Kind kind : ImpliedTypes(AnySchema()))
      branches->push_back({kind, &AnySchema(), pointer});
    return;
  }
  CheckKeywords(schema, pointer);
  if (schema.contains("$ref")) return ExpandReference(schema, pointer, branches);
  for (const char* keyword : {"anyOf", "oneOf", "allOf"}) {
    if (schema.contains(keyword)) return ExpandAlternatives(schema, keyword, pointer, branches);
  }
  const std::optional<std::vector<Kind>> declared = DeclaredTypes(schema, pointer);
  for (const char* keyword : {"const", "enum"}) {
    const OrderedJson* values = MemberOf(schema, keyword);
    if (values == nullptr) continue;
    if (const auto beside = RestrictionBeside(schema, {keyword, "type"}); !beside.empty()) {
      throw SchemaError(PointerTo(pointer, beside),
                        fmt::format("\"{}\" beside \"{}\" is not supported", beside, keyword));
    }
    std::vector<Branch> given;
    if (std::string_view(keyword) == "const") {
      given.push_back({Kind::kValue, values, pointer});
    } else {
      if (!values->is_array() || values->empty()) {
        throw SchemaError(PointerTo(pointer, keyword), "expected an array that is not empty");
      }
      for (const OrderedJson& value : *values) given.push_back({Kind::kValue, &value, pointer});
    }
    if (declared) Filter(*declared, &given);
    branches->insert(branches->end(), given.begin(), given.end());
    return;
  }
  std::vector<Kind> kinds = declared ? *declared : ImpliedTypes(schema);
  if (Includes(kinds, Kind::kNumber)) std::erase(kinds, Kind::kInteger);
  for (const Kind kind : kinds) branches->push_back({kind, &schema, pointer});
}

void SchemaCompiler::ExpandReference(const OrderedJson& schema, const std::string& pointer,
                                     std::vector<Branch>* branches) {
  const std::string here = PointerTo(pointer, "$ref");
  if (const auto beside = RestrictionBeside(schema, {"$ref"}); !beside.empty()) {
    throw SchemaError(PointerTo(pointer, beside),
                      fmt::format("\"{}\" beside \"$ref\" is not supported", beside));
  }
  const OrderedJson& reference = schema.at("$ref");
  if (!reference.is_string()) throw SchemaError(here, "expected a string");
  const std::string& target = reference.get_ref<const std::string&>();
  const OrderedJson& found = Resolve(target, here);
  if (std::find(references_.begin(), references_.end(), &found) != references_.end()) {
    throw SchemaError(here, "the schema refers to itself without an object or array in between");
  }
  if (references_.size() >= kMaxReferences) {
    throw SchemaError(here,
                      fmt::format("more than {} references follow each other", kMaxReferences));
  }
  references_.push_back(&found);
  ExpandInto(found, target, branches);
  references_.pop_back();
}

const OrderedJson& SchemaCompiler::Resolve(const std::string& reference,
                                           const std::string& pointer) const {
  if (reference == "#") return document_;
  const OrderedJson* at = &document_;
  if (!reference.starts_with("#/")) {
    throw SchemaError(pointer,
                      fmt::format("\"{}\" is no local reference (\"#/$defs/NAME\")", reference));
  }
  std::string_view rest = std::string_view(reference).substr(2);
  while (true) {
    const size_t end = std::min(rest.find('/'), rest.size());
    std::string step;
    for (size_t i = 0; i < end; ++i) {
      const bool escape =
          rest[i] == '~' && i + 1 < end && (rest[i + 1] == '0' || rest[i + 1] == '1');
      step += escape ? (rest[i + 1] == '0' ? '~' : '/') : rest[i];
      if (escape) ++i;
    }
    const OrderedJson* next = nullptr;
    if (at->is_object()) next = MemberOf(*at, step);
    if (at->is_array() && !step.empty() && step.size() <= 6 &&
        step.find_first_not_of("0123456789") == std::string::npos) {
      const auto index = static_cast<size_t>(std::stoul(step));
      if (index < at->size()) next = &(*at)[index];
    }
    if (next == nullptr) {
      throw SchemaError(pointer, fmt::format("\"{}\" leads to nothing in the schema", reference));
    }
    at = next;
    if (end == rest.size()) return *at;
    rest.remove_prefix(end + 1);
  }
}

void SchemaCompiler::ExpandAlternatives(const OrderedJson& schema, const char* keyword,
                                        const std::string& pointer, std::vector<Branch>* branches) {
  const std::string here = PointerTo(pointer, keyword);
  const OrderedJson& parts = schema.at(keyword);
  if (!parts.is_array() || parts.empty()) {
    throw SchemaError(here, "expected an array that is not empty");
  }
  if (const auto beside = RestrictionBeside(schema, {keyword, "type"}); !beside.empty()) {
    throw SchemaError(PointerTo(pointer, beside),
                      fmt::format("\"{}\" beside \"{}\" is not supported", beside, keyword));
  }
  if (std::string_view(keyword) == "allOf" && parts.size() > 1) {
    throw SchemaError(here, "\"allOf\" with more than one schema is not supported");
  }
  std::vector<Branch> found;
  for (size_t i = 0; i < parts.size(); ++i) {
    ExpandInto(parts[i], PointerTo(here, std::to_string(i)), &found);
  }
  if (const auto declared = DeclaredTypes(schema, pointer)) Filter(*declared, &found);
  branches->insert(branches->end(), found.begin(), found.end());
}

SchemaCompiler::State SchemaCompiler::Value(const OrderedJson& schema, const std::string& pointer,
                                            State next) {
  std::vector<State> ways;
  std::vector<std::string> given;
  for (const Branch& branch : Expand(schema, pointer)) {
    if (branch.kind == Kind::kValue) {
      given.push_back(Written(*branch.schema));
    } else {
      ways.push_back(Value(branch, next));
    }
  }
  if (!given.empty()) {
    std::sort(given.begin(), given.end());
    given.erase(std::unique(given.begin(), given.end()), given.end());
    ways.push_back(OneOf(given, 0, kMaxForks, next));
  }
  return builder_.Split(std::move(ways));
}

// One of `texts`, sorted, all equal up to `begin`. What begins alike is written once, so that a
// reply is in one place however many values there are.
SchemaCompiler::State SchemaCompiler::OneOf(std::span<const std::string> texts, size_t begin,
                                            int forks, State next) {
  std::vector<State> ways;
  if (texts.front().size() == begin) {
    ways.push_back(next);
    texts = texts.subspan(1);
  }
  while (!texts.empty()) {
    const std::string& first = texts.front();
    size_t count = 1;
    while (forks > 0 && count < texts.size() && texts[count][begin] == first[begin]) ++count;
    const std::string& last = texts[count - 1];
    const auto end = static_cast<size_t>(
        std::mismatch(first.begin(), first.end(), last.begin(), last.end()).first - first.begin());
    const std::string_view piece = std::string_view(first).substr(begin, end - begin);
    const State rest = count == 1 ? next : OneOf(texts.first(count), end, forks - 1, next);
    ways.push_back(builder_.Literal(piece, rest));
    texts = texts.subspan(count);
  }
  return builder_.Split(std::move(ways));
}

SchemaCompiler::State SchemaCompiler::Value(const Branch& branch, State next) {
  switch (branch.kind) {
    case Kind::kObject:
    case Kind::kArray:
      return builder_.Call(RuleFor(branch), next);
    case Kind::kString: {
      if (syntax_ == ValueSyntax::kJson) {
        const State close = builder_.Literal("\"", next);
        return builder_.Literal("\"", StringText(branch, StringForm::kJson, nullptr, close));
      }
      const char mark = MarkerByte(TextFamily::kGemma4, Marker::kStringDelimiter);
      const State close = builder_.Literal({&mark, 1}, next);
      return builder_.Literal({&mark, 1}, StringText(branch, StringForm::kRaw, nullptr, close));
    }
    case Kind::kNumber:
    case Kind::kInteger:
      return NumberText(branch, next);
    case Kind::kBoolean:
      return builder_.Split({builder_.Literal("true", next), builder_.Literal("false", next)});
    case Kind::kNull:
      return builder_.Literal("null", next);
    case Kind::kValue:
      break;  // with the other given values
  }
  return next;
}

SchemaCompiler::State SchemaCompiler::StringText(const Branch& string, StringForm form,
                                                 const DfaPtr& within, State next) {
  const OrderedJson& schema = *string.schema;
  const uint32_t min = CountOf(schema, "minLength", string.pointer, kMaxCount).value_or(0);
  const std::optional<uint32_t> max = CountOf(schema, "maxLength", string.pointer, UINT32_MAX - 1);
  if (max && *max < min) throw SchemaError(string.pointer, "minLength is above maxLength");
  const uint32_t most = max.value_or(UINT32_MAX);
  const OrderedJson* pattern = MemberOf(schema, "pattern");
  if (pattern == nullptr) {
    const DfaPtr& any = form == StringForm::kJson ? JsonStringText() : RawText();
    return builder_.Counted(within != nullptr ? within : any, min, most, next);
  }

  const std::string here = PointerTo(string.pointer, "pattern");
  if (!pattern->is_string()) throw SchemaError(here, "expected a string");
  DfaPtr& dfa = automata_[{&schema, Kind::kString, form, within.get()}];
  if (dfa == nullptr) {
    std::optional<DfaPtr> made;
    try {
      made = MakeDfa(ParsePattern(pattern->get_ref<const std::string&>(), form));
    } catch (const PatternError& error) {
      throw SchemaError(here,
                        fmt::format("byte {} of the pattern: {}", error.offset(), error.what()));
    }
    const bool counted = min > 0 || max.has_value();
    if (made && *made && counted) {
      const Dfa& scalars = form == StringForm::kJson ? *CanonicalJsonText() : *RawText();
      const std::optional<DfaPtr> lengths = CountRounds(scalars, min, most);
      made = lengths && *lengths ? Intersect(**made, **lengths) : std::nullopt;
    }
    if (made && *made && within != nullptr) made = Intersect(**made, *within);
    if (!made)
      throw SchemaError(here, "the pattern, with its lengths, needs too large an automaton");
    if (*made == nullptr) throw SchemaError(here, "no string matches the pattern and the lengths");
    dfa = *made;
  }
  return builder_.Text(dfa, next);
}

SchemaCompiler::State SchemaCompiler::NumberText(const Branch& branch, State next) {
  DfaPtr& dfa = automata_[{branch.schema, branch.kind, StringForm::kRaw, nullptr}];
  if (dfa == nullptr) {
    const auto bound = [&](const char* keyword, bool exclusive) -> std::optional<NumberBound> {
      const OrderedJson* value = MemberOf(*branch.schema, keyword);
      if (value == nullptr) return std::nullopt;
      if (!value->is_number()) {
        throw SchemaError(PointerTo(branch.pointer, keyword), "expected a number");
      }
      return NumberBound{Decimal::Parse(value->dump()), exclusive};
    };
    const bool integer = branch.kind == Kind::kInteger;
    const NumberLimits closed = {bound("minimum", false), bound("maximum", false), integer};
    const NumberLimits open = {bound("exclusiveMinimum", true), bound("exclusiveMaximum", true),
                               integer};
    std::optional<DfaPtr> made = MakeDfa(RegexNumber(closed));
    if (open.low || open.high) {
      const std::optional<DfaPtr> more = MakeDfa(RegexNumber(open));
      if (closed.low || closed.high) {
        made = made && *made && more && *more ? Intersect(**made, **more) : DfaPtr();
      } else {
        made = more;
      }
    }
    if (!made) throw SchemaError(branch.pointer, "the bounds need too large an automaton");
    if (*made == nullptr) {
      throw SchemaError(
          branch.pointer,
          fmt::format("no number of at most {} digits is within the bounds", kMaxIntegerDigits));
    }
    dfa = *made;
  }
  return builder_.Text(dfa, next);
}

// A given value, always compact.
std::string SchemaCompiler::Written(const OrderedJson& value) const {
  if (syntax_ == ValueSyntax::kJson) return value.dump();
  const char mark = MarkerByte(TextFamily::kGemma4, Marker::kStringDelimiter);
  std::string text;
  if (value.is_string()) {
    text = mark + value.get<std::string>() + mark;
  } else if (value.is_array()) {
    for (const OrderedJson& item : value) text += (text.empty() ? "" : ",") + Written(item);
    text = "[" + text + "]";
  } else if (value.is_object()) {
    for (const auto& [name, member] : value.items()) {
      if (!text.empty()) text += ',';
      const bool bare = BareKeyText()->Matches(name);
      text += bare ? name : mark + name + mark;
      text += ":" + Written(member);
    }
    text = "{" + text + "}";
  } else {
    text = value.dump();
  }
  return text;
}

SchemaCompiler::State SchemaCompiler::RuleFor(const Branch& branch) {
  auto& rules = branch.kind == Kind::kObject ? objects_ : arrays_;
  const auto [entry, fresh] = rules.try_emplace(branch.schema, 0);
  if (fresh) {
    entry->second = builder_.Forward();
    pending_.push_back({entry->second, branch});
  }
  return entry->second;
}

void SchemaCompiler::CompileRules() {
  while (!pending_.empty()) {
    const Rule rule = pending_.back();
    pending_.pop_back();
    const State body =
        rule.branch.kind == Kind::kObject ? ObjectBody(rule.branch) : ArrayBody(rule.branch);
    builder_.SetTargets(rule.entry, {body});
  }
}

SchemaCompiler::State SchemaCompiler::Space(State next) {
  return syntax_ == ValueSyntax::kJson ? builder_.Text(WhiteSpace(), next) : next;
}

// A member's name with its colon, then `next`.
SchemaCompiler::State SchemaCompiler::Key(const std::string& name, State next) {
  if (syntax_ == ValueSyntax::kJson) {
    std::string text = "\"";
    AppendJsonEscaped(name, &text);
    return builder_.Literal(text + "\":", builder_.Text(OptionalSpace(), next));
  }
  if (BareKeyText()->Matches(name)) return builder_.Literal(name + ":", next);
  const char mark = MarkerByte(TextFamily::kGemma4, Marker::kStringDelimiter);
  return builder_.Literal(mark + name + mark + ":", next);
}

SchemaCompiler::Members SchemaCompiler::MembersOf(const Branch& object) const {
  const OrderedJson& schema = *object.schema;
  Members members;
  const OrderedJson* properties = MemberOf(schema, "properties");
  if (properties != nullptr) {
    const std::string here = PointerTo(object.pointer, "properties");
    if (!properties->is_object()) throw SchemaError(here, "expected an object");
    for (const auto& [name, value] : properties->items()) {
      members.properties.push_back({name, &value, PointerTo(here, name), false});
    }
  }
  const OrderedJson* additional = MemberOf(schema, "additionalProperties");
  members.additional_pointer = PointerTo(object.pointer, "additionalProperties");
  if (additional != nullptr) {
    if (*additional != OrderedJson(false)) members.additional = additional;
  } else if (properties == nullptr) {
    members.additional = &AnySchema();
  }
  const OrderedJson* required = MemberOf(schema, "required");
  if (required == nullptr) return members;
  const std::string here = PointerTo(object.pointer, "required");
  if (!required->is_array()) throw SchemaError(here, "expected an array of names");
  std::unordered_map<std::string, size_t> known;
  for (size_t i = 0; i < members.properties.size(); ++i) known[members.properties[i].name] = i;
  for (const OrderedJson& name : *required) {
    if (!name.is_string()) throw SchemaError(here, "expected an array of names");
    const std::string& text = name.get_ref<const std::string&>();
    const auto [entry, fresh] = known.try_emplace(text, members.properties.size());
    if (!fresh) {
      members.properties[entry->second].required = true;
      continue;
    }
    // Not described: any value, unless the schema says what other members are.
    if (additional != nullptr && members.additional == nullptr) {
      throw SchemaError(here, fmt::format("\"{}\" is required, but no property", text));
    }
    const OrderedJson* value = members.additional != nullptr ? members.additional : &AnySchema();
    members.properties.push_back({text, value, members.additional_pointer, true});
  }
  return members;
}

SchemaCompiler::State SchemaCompiler::ObjectBody(const Branch& branch) {
  const Members members = MembersOf(branch);
  const size_t count = members.properties.size();
  const State close = Space(builder_.Literal("}", builder_.Return()));

  // Members that the schema does not name, after all that it does.
  std::optional<State> other_key;
  if (members.additional != nullptr) {
    const State after = builder_.Forward();
    State value = Value(*members.additional, members.additional_pointer, after);
    std::vector<std::string> names;
    for (const Property& property : members.properties) names.push_back(property.name);
    if (syntax_ == ValueSyntax::kJson) {
      value = builder_.Literal("\":", builder_.Text(OptionalSpace(), value));
      other_key = builder_.Literal("\"", builder_.Key(JsonKeyText(), std::move(names), value));
    } else {
      other_key = builder_.Key(BareKeyText(), std::move(names), builder_.Literal(":", value));
    }
    builder_.SetTargets(after, {builder_.Literal(",", Space(*other_key)), close});
  }

  // From the last property to the first: `keys` are the ways to begin a member where property i is
  // the first that may come, `after` is what follows property i - 1.
  std::vector<State> keys;
  if (other_key) keys.push_back(*other_key);
  bool may_close = true;
  State after = close;
  for (size_t i = count + 1; i-- > 0;) {
    std::vector<State> ways;
    if (!keys.empty()) {
      const State member = builder_.Split(keys);
      ways.push_back(i == 0 ? Space(member) : builder_.Literal(",", Space(member)));
    }
    if (may_close) ways.push_back(close);
    after = builder_.Split(std::move(ways));
    if (i == 0) break;
    const Property& property = members.properties[i - 1];
    if (property.required) {
      keys.clear();
      may_close = false;
    }
    keys.insert(keys.begin(), Key(property.name, Value(*property.schema, property.pointer, after)));
  }
  return builder_.Literal("{", after);
}

SchemaCompiler::State SchemaCompiler::ArrayBody(const Branch& branch) {
  const OrderedJson& schema = *branch.schema;
  const uint32_t min = CountOf(schema, "minItems", branch.pointer, kMaxFixedItems).value_or(0);
  uint32_t max = CountOf(schema, "maxItems", branch.pointer, UINT32_MAX - 1).value_or(UINT32_MAX);
  if (max < min) throw SchemaError(branch.pointer, "minItems is above maxItems");

  const OrderedJson* items = MemberOf(schema, "items");
  const OrderedJson* prefix = MemberOf(schema, "prefixItems");
  const char* prefix_name = "prefixItems";
  if (items != nullptr && items->is_array()) {  // the older way to write it
    if (prefix != nullptr) {
      throw SchemaError(PointerTo(branch.pointer, "items"), "expected a schema");
    }
    prefix = std::exchange(items, nullptr);
    prefix_name = "items";
  }
  const std::string prefix_pointer = PointerTo(branch.pointer, prefix_name);
  const std::string items_pointer = PointerTo(branch.pointer, "items");
  if (prefix != nullptr && !prefix->is_array()) {
    throw SchemaError(prefix_pointer, "expected an array of schemas");
  }
  const size_t given = prefix != nullptr ? prefix->size() : 0;
  // Items that the schema does not describe come only where it counts on them.
  if (items == nullptr && (prefix == nullptr || min > given)) items = &AnySchema();
  const bool open = items != nullptr && *items != OrderedJson(false);
  if (!open) max = static_cast<uint32_t>(std::min<size_t>(max, given));
  if (max < min)
    throw SchemaError(branch.pointer, "minItems asks for more items than there may be");

  const auto item = [&](size_t index, State next) {
    if (index < given) {
      return Value((*prefix)[index], PointerTo(prefix_pointer, std::to_string(index)), next);
    }
    return Value(*items, items_pointer, next);
  };
  const State close = Space(builder_.Literal("]", builder_.Return()));

  // Behind the items that are alike, each a place of its own: `after` follows item i - 1.
  const auto fixed =
      static_cast<uint32_t>(std::min<size_t>(max, std::max({size_t{min}, given, size_t{1}})));
  State after = close;
  if (max > fixed && open) {
    const State head = builder_.Forward();
    const State body = builder_.Literal(",", Space(item(fixed, head)));
    builder_.SetTargets(head, {builder_.Loop(body, max == UINT32_MAX ? max : max - fixed, close)});
    after = head;
  }
  for (uint32_t i = fixed; i-- > 0;) {
    const State value = Space(item(i, after));
    std::vector<State> ways = {i == 0 ? value : builder_.Literal(",", value)};
    if (i >= min) ways.push_back(close);
    after = builder_.Split(std::move(ways));
  }
  return builder_.Literal("[", after);
}

}  // namespace mference
