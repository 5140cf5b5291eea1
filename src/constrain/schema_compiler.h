// JSON Schema to grammar: the subset that can be guaranteed token by token.
//
// docs/constrained-decoding.md has the subset. What a schema leaves open is narrowed where that
// helps a model and harms nobody: keys come in the schema's order, and an object with `properties`
// has no others unless `additionalProperties` allows them in so many words. A keyword that
// restricts and is not understood is refused by name; nothing is accepted and ignored but
// annotations.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/json.h"
#include "constrain/grammar.h"
#include "constrain/regex.h"

namespace mference {

// A schema that is not supported or that nothing satisfies. `pointer` is the place, as a JSON
// pointer in a URI fragment (`#/properties/name/not`).
class SchemaError : public Error {
 public:
  SchemaError(std::string pointer, const std::string& what)
      : Error(ErrorCode::kSchemaUnsupported, pointer + ": " + what), pointer_(std::move(pointer)) {}
  const std::string& pointer() const { return pointer_; }

 private:
  std::string pointer_;
};

// How values are written.
enum class ValueSyntax {
  kJson,   // JSON; compact or with white space where pretty-printers put it
  kGemma,  // Gemma's calls: strings raw between <|"|> tokens, keys bare, no white space
};

// Compiles values of one schema document into a builder. The document must outlive the compiler;
// after the last value `CompileRules` must be called.
class SchemaCompiler {
 public:
  using State = GrammarBuilder::State;

  static constexpr uint32_t kMaxCount = 1'000'000;  // of lengths and items
  static constexpr uint32_t kMaxFixedItems = 4096;

  SchemaCompiler(const OrderedJson& document, ValueSyntax syntax, GrammarBuilder* builder)
      : document_(document), syntax_(syntax), builder_(*builder) {}

  // One way a value can be: a type with the schema that restricts it, or one given value.
  struct Branch {
    enum class Kind { kObject, kArray, kString, kNumber, kInteger, kBoolean, kNull, kValue };
    Kind kind = Kind::kNull;
    const OrderedJson* schema = nullptr;  // the restricting schema, or the value
    std::string pointer;

    bool is_string() const {
      return kind == Kind::kString || (kind == Kind::kValue && schema->is_string());
    }
    bool is_object() const { return kind == Kind::kObject; }
  };
  // The ways of a schema, references and alternatives followed. Throws SchemaError.
  std::vector<Branch> Expand(const OrderedJson& schema, const std::string& pointer);
  std::vector<Branch> ExpandDocument() { return Expand(document_, "#"); }

  // A value, then `next`.
  State Value(const OrderedJson& schema, const std::string& pointer, State next);
  State Document(State next) { return Value(document_, "#", next); }
  State Value(const Branch& branch, State next);
  State OneOf(std::span<const std::string> texts, size_t begin, int forks, State next);

  // The members of an object, in the order in which they are written.
  struct Property {
    std::string name;
    const OrderedJson* schema = nullptr;
    std::string pointer;
    bool required = false;
  };
  struct Members {
    std::vector<Property> properties;
    const OrderedJson* additional = nullptr;  // schema of other members; null: there are none
    std::string additional_pointer;
  };
  Members MembersOf(const Branch& object) const;

  // The text of a string, written in `form`, then `next`. `within`, if given, restricts it further.
  State StringText(const Branch& string, StringForm form, const DfaPtr& within, State next);

  // Compiles the objects and arrays that the values so far need.
  void CompileRules();

 private:
  struct Rule {
    State entry;
    Branch branch;
  };

  void ExpandInto(const OrderedJson& schema, const std::string& pointer,
                  std::vector<Branch>* branches);
  void ExpandReference(const OrderedJson& schema, const std::string& pointer,
                       std::vector<Branch>* branches);
  void ExpandAlternatives(const OrderedJson& schema, const char* keyword,
                          const std::string& pointer, std::vector<Branch>* branches);
  const OrderedJson& Resolve(const std::string& reference, const std::string& pointer) const;

  State RuleFor(const Branch& branch);
  State ObjectBody(const Branch& branch);
  State ArrayBody(const Branch& branch);
  State NumberText(const Branch& branch, State next);
  State GivenValue(const OrderedJson& value, State next);
  std::string Written(const OrderedJson& value) const;
  State Space(State next);
  State Key(const std::string& name, State next);

  const OrderedJson& document_;
  const ValueSyntax syntax_;
  GrammarBuilder& builder_;
  std::map<const OrderedJson*, State> objects_;  // entries of rules, by schema
  std::map<const OrderedJson*, State> arrays_;
  std::vector<Rule> pending_;
  // By schema, type, form and what restricts it further: one schema may be used in several ways.
  using AutomatonKey = std::tuple<const OrderedJson*, Branch::Kind, StringForm, const Dfa*>;
  std::map<AutomatonKey, DfaPtr> automata_;
  std::vector<const OrderedJson*> references_;  // being followed
  size_t expanded_ = 0;
};

}  // namespace mference
