// The members that chat and text completions have in common: which model, how to sample, when to
// stop, how to answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/api/request_fields.h"
#include "server/api/served_model.h"

namespace mference::server {

struct GenerationFields {
  bool stream = false;
  bool include_usage = false;
  SamplingParams sampling;  // with the request's seed, or a random one
  std::vector<std::string> stops;
  int64_t max_tokens = 0;  // INT64_MAX: as much as fits
  bool logprobs = false;
  int32_t top_logprobs = 0;
  std::vector<std::string> ignored;  // members, by path, that mean nothing here
};

// Null, false, 0 and what is empty: clients send them as their defaults.
bool IsNeutral(const jinja::Value& value);

// `model` is there and is the served one; else `invalid_json` or 404 `model_not_found`. One choice
// is all that is asked for.
void CheckModel(RequestFields& fields, const ServedModel& model);

// Refuses, by name, members that would change the answer and mean nothing here. Neutral values
// pass.
void RefuseUnsupported(RequestFields& fields);

// Everything else of the struct but the log-probabilities, in the order of the specification.
void ReadSampling(RequestFields& fields, const ServedModel& model, int64_t default_max_tokens,
                  GenerationFields* out);
void ReadPenalties(RequestFields& fields, GenerationFields* out);
void ReadStreaming(RequestFields& fields, GenerationFields* out);

}  // namespace mference::server
