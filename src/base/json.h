// JSON from untrusted places: bounded before it is parsed, and errors that say where.
//
// A thin layer over nlohmann::json. `JsonReader` walks a document and remembers the path, so that
// a wrong type is reported as `$.arch.numLayers: expected an integer, found "30"`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace mference {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// Parses UTF-8 `text`, at most `max_depth` levels deep. Failures are `Error(code, ...)` whose
// message begins with `name` and has the byte offset. Duplicate keys: the last one wins.
Json ParseJson(std::string_view text, const std::string& name, ErrorCode code,
               size_t max_depth = 64);
OrderedJson ParseOrderedJson(std::string_view text, const std::string& name, ErrorCode code,
                             size_t max_depth = 64);

// A view of one value with the path that led to it. Holds a reference: the document must outlive
// it. Every accessor throws `Error(code, "NAME: PATH: expected ..., found ...")`.
class JsonReader {
 public:
  JsonReader(const Json& value, std::string name, ErrorCode code)
      : value_(&value), path_("$"), name_(std::move(name)), code_(code) {}

  const Json& value() const { return *value_; }
  const std::string& path() const { return path_; }

  bool Has(std::string_view key) const;       // an object with a non-null member
  JsonReader At(std::string_view key) const;  // required member
  JsonReader At(size_t index) const;          // required element
  size_t ArraySize() const;                   // requires an array

  bool Bool() const;
  std::string String() const;
  int64_t Int() const;    // also accepts 5.0
  uint64_t Uint() const;  // Int() >= 0
  double Double() const;
  std::vector<int64_t> IntArray() const;
  void RequireObject() const;

  [[noreturn]] void FailHere(const std::string& problem) const;

 private:
  JsonReader(const Json& value, std::string path, std::string name, ErrorCode code)
      : value_(&value), path_(std::move(path)), name_(std::move(name)), code_(code) {}

  const Json* value_;
  std::string path_;
  std::string name_;
  ErrorCode code_;
};

}  // namespace mference
