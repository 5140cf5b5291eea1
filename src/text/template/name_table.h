// The variable names of a template: their numbers, and which special ones a body mentions.
#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "text/template/ast.h"

namespace mference::jinja {

class NameTable {
 public:
  NameTable();  // holds the special names, at the symbols that ast.h gives them
  NameTable(const NameTable&) = delete;
  NameTable& operator=(const NameTable&) = delete;

  Symbol Intern(const std::string& name);
  // Notes that the source reads `symbol`.
  void Mention(Symbol symbol);
  // The names by symbol; the table is empty afterwards.
  std::vector<std::string> TakeTexts() { return std::move(texts_); }

  // The special names that are mentioned while it lives. Records nest: all of them see a mention.
  class Mentions {
   public:
    explicit Mentions(NameTable& names);
    ~Mentions() { names_.records_.pop_back(); }
    Mentions(const Mentions&) = delete;
    Mentions& operator=(const Mentions&) = delete;
    bool Has(Symbol special) const { return special_[special]; }

   private:
    friend class NameTable;
    NameTable& names_;
    std::array<bool, kKwargsSymbol + 1> special_ = {};
  };

 private:
  std::map<std::string, Symbol> symbols_;
  std::vector<std::string> texts_;
  std::vector<Mentions*> records_;
};

}  // namespace mference::jinja
