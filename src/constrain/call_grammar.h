// Tool calls in the families' native syntax, as grammar. What is written here is what the dialects'
// parsers (text/dialects) read.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "constrain/grammar.h"
#include "constrain/schema_compiler.h"
#include "text/framing/family.h"

namespace mference {

struct ConstrainedTool;

class CallGrammar {
 public:
  using State = GrammarBuilder::State;

  // Schema compilers made on the way go to `compilers`; their rules are the caller's to compile.
  CallGrammar(TextFamily family, GrammarBuilder* builder,
              std::vector<std::unique_ptr<SchemaCompiler>>* compilers)
      : family_(family), builder_(*builder), compilers_(*compilers) {}

  // One call of one of `tools`, or several if `parallel`, then `next`. Throws SchemaError, naming
  // the tool.
  State Sequence(const std::vector<const ConstrainedTool*>& tools, bool parallel, State next);

 private:
  struct Frame {
    std::string open;   // of a call, up to the name
    std::string named;  // after the name, up to the arguments
    std::string close;  // after the arguments
  };

  Frame FrameOf(const std::string& name) const;
  State Arguments(const ConstrainedTool& tool, State next);
  State ObjectArguments(SchemaCompiler* compiler, State next);
  State TaggedArguments(SchemaCompiler* compiler, State next);
  State TaggedParameter(SchemaCompiler* compiler, const SchemaCompiler::Property& property,
                        State next);
  void AddString(SchemaCompiler* compiler, const SchemaCompiler::Branch& branch, bool typed,
                 State close, std::vector<State>* ways);
  std::string Mark(Marker marker) const { return {MarkerByte(family_, marker)}; }

  const TextFamily family_;
  GrammarBuilder& builder_;
  std::vector<std::unique_ptr<SchemaCompiler>>& compilers_;
};

}  // namespace mference
