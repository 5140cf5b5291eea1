// What requests are checked against: facts of the one model that is served.
#pragma once

#include <cstdint>
#include <string>

#include "engine/sampler.h"
#include "text/framing/family.h"

namespace mference::server {

struct ServedModel {
  std::string id;
  TextFamily family = TextFamily::kGemma4;
  SamplingParams sampling_defaults;
  int64_t context = 0;
  int32_t vocab_size = 0;
  bool thinking = false;    // where a request does not say
  std::string fingerprint;  // of weights and program
};

}  // namespace mference::server
