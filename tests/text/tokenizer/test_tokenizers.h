// Tokenizers that the tests share, and a way to damage one.
#pragma once

#include <functional>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer/tokenizer.h"

namespace mference {

inline std::string TokenizerData(const std::string& relative) {
  return std::string(MFERENCE_TEST_DATA) + "/tokenizers/" + relative;
}

inline constexpr const char* kTinyTokenizers[] = {"tiny-gemma",  "tiny-qwen3",
                                                  "tiny-qwen36", "tiny-deepseek",
                                                  "tiny-o200k",  "tiny-o200k-ignore-merges"};

inline Json ReadJsonFile(const std::string& path) {
  return ParseJson(ReadTextFile(path, uint64_t{16} << 20), path, ErrorCode::kInvalidArgument);
}

inline Json TinyJson(const std::string& name) {
  return ReadJsonFile(TokenizerData(name + "/tokenizer.json"));
}

inline Tokenizer LoadTiny(const std::string& name) {
  return Tokenizer::Load(TokenizerData(name + "/tokenizer.json"), IdConflicts::kFollowReference);
}

inline Tokenizer LoadEdited(const std::string& name, const std::function<void(Json&)>& edit,
                            IdConflicts conflicts = IdConflicts::kRefuse) {
  Json json = TinyJson(name);
  edit(json);
  return Tokenizer::FromJson(json.dump(), "edited", conflicts);
}

}  // namespace mference
