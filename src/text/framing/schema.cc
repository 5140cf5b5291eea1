#include "text/framing/schema.h"

#include <optional>
#include <string>
#include <string_view>

namespace mference {
namespace {

using jinja::Dict;
using jinja::List;
using jinja::Origin;
using jinja::Value;

Value Key(std::string_view name) { return Value::Str(std::string(name), Origin::kTemplate); }

// The node's type if it is one string.
std::optional<std::string> ScalarType(const Dict& node) {
  const Value* type = node.Find("type");
  if (type == nullptr || !type->IsString()) return std::nullopt;
  return type->text();
}

Dict Without(const Dict& node, std::string_view key) {
  Dict rest;
  for (const auto& [name, value] : node.entries()) {
    if (name.text() != key) rest.Set(name, value);
  }
  return rest;
}

// Adds the members of `extra` that `node` lacks.
void MergeMissing(Dict& node, const Dict& extra) {
  for (const auto& [name, value] : extra.entries()) {
    if (node.Find(name) == nullptr) node.Set(name, value);
  }
}

Dict Normalise(const Dict& node);

Dict NormaliseAny(const Value& node) {
  return node.IsDict() ? Normalise(node.dict()) : Normalise(Dict());
}

// Rule 2: the first branch with a type that is not null, else the first.
Dict ChooseBranch(const List& branches) {
  std::optional<Dict> fallback;
  for (const Value& branch : branches) {
    if (!branch.IsDict()) continue;
    Dict candidate = Normalise(branch.dict());
    if (ScalarType(candidate) != "null") return candidate;
    if (!fallback) fallback = std::move(candidate);
  }
  return fallback.value_or(Dict());
}

// Rule 3: all branches in one, earlier members winning, `properties` united.
Dict MergeBranches(const List& branches) {
  Dict merged;
  Dict properties;
  for (const Value& branch : branches) {
    if (!branch.IsDict()) continue;
    const Value* own = branch.dict().Find("properties");
    if (own != nullptr && own->IsDict()) MergeMissing(properties, own->dict());
    MergeMissing(merged, branch.dict());
  }
  if (!properties.empty()) merged.Set(Key("properties"), Value::MakeDict(std::move(properties)));
  return merged;
}

// The union of a node and what its alternatives resolve to, or nothing when it has none.
std::optional<Dict> ResolveUnion(const Dict& node) {
  for (const char* keyword : {"anyOf", "oneOf", "allOf"}) {
    const Value* branches = node.Find(keyword);
    if (branches == nullptr || !branches->IsList()) continue;
    Dict resolved = std::string_view(keyword) == "allOf" ? MergeBranches(branches->items())
                                                         : ChooseBranch(branches->items());
    const Dict parent = Without(node, keyword);
    const Value* united = resolved.Find("properties");
    const Value* own = parent.Find("properties");
    if (united != nullptr && united->IsDict() && own != nullptr && own->IsDict()) {
      Dict properties = united->dict();
      MergeMissing(properties, own->dict());
      resolved.Set(Key("properties"), Value::MakeDict(std::move(properties)));
    }
    MergeMissing(resolved, parent);
    return resolved;
  }
  return std::nullopt;
}

Value NormaliseItems(const Value& items) {
  if (!items.IsList()) return Value::MakeDict(NormaliseAny(items));
  List normalised;
  for (const Value& item : items.items()) normalised.push_back(Value::MakeDict(NormaliseAny(item)));
  return Value::MakeList(std::move(normalised));
}

Dict Normalise(const Dict& node) {
  Dict result = node;
  const Value* type = node.Find("type");
  if (type != nullptr && type->IsList()) {
    result = Without(node, "type");
    for (const Value& member : type->items()) {
      if (!member.IsString() || member.text() == "null") continue;
      // In its old place, so that key order is kept.
      result = node;
      result.Set(Key("type"), member);
      break;
    }
  }
  if (!ScalarType(result)) {
    if (auto resolved = ResolveUnion(Without(result, "type"))) return Normalise(*resolved);
  }
  if (!ScalarType(result)) {
    result.Set(Key("type"), Key(result.Find("properties") != nullptr ? "object" : "string"));
  }
  if (const Value* properties = result.Find("properties");
      properties != nullptr && properties->IsDict()) {
    Dict normalised;
    for (const auto& [name, schema] : properties->dict().entries()) {
      normalised.Set(name, Value::MakeDict(NormaliseAny(schema)));
    }
    result.Set(Key("properties"), Value::MakeDict(std::move(normalised)));
  } else if (ScalarType(result) == "object") {
    // Else the template would take the node's own keywords for properties.
    result.Set(Key("properties"), Value::MakeDict({}));
  }
  if (const Value* items = result.Find("items"); items != nullptr) {
    result.Set(Key("items"), NormaliseItems(*items));
  }
  return result;
}

}  // namespace

Value NormaliseSchemaForGemma(const Value& schema) { return Value::MakeDict(NormaliseAny(schema)); }

}  // namespace mference
