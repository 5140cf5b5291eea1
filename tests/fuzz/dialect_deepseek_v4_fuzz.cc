#include "fuzz/dialect_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  mference::FuzzDialect(mference::TextFamily::kDeepseekV4, data, size);
  return 0;
}
