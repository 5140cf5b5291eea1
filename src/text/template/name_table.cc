#include "text/template/name_table.h"

namespace mference::jinja {

NameTable::NameTable() {
  for (const char* special : {"loop", "caller", "varargs", "kwargs"}) Intern(special);
}

Symbol NameTable::Intern(const std::string& name) {
  const auto [entry, inserted] = symbols_.emplace(name, static_cast<Symbol>(texts_.size()));
  if (inserted) texts_.push_back(name);
  return entry->second;
}

void NameTable::Mention(Symbol symbol) {
  if (symbol > kKwargsSymbol) return;
  for (Mentions* record : records_) record->special_[symbol] = true;
}

NameTable::Mentions::Mentions(NameTable& names) : names_(names) { names_.records_.push_back(this); }

}  // namespace mference::jinja
