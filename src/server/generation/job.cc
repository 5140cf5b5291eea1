#include "server/generation/job.h"

#include "server/random_id.h"

namespace mference::server {
namespace {

constexpr int kCallIdDigits = 24;

}  // namespace

const std::string& CallIds::Get(size_t call) {
  while (ids_.size() <= call) ids_.push_back(RandomId("call_", kCallIdDigits));
  return ids_[call];
}

}  // namespace mference::server
