#include "experts/policy_choice.h"

#include "base/error.h"
#include "experts/lab_policies.h"

namespace mference {

std::string_view CachePolicyName(CachePolicyKind kind) {
  switch (kind) {
    case CachePolicyKind::kLru:
      return "lru";
    case CachePolicyKind::kLfu:
      return "lfu";
    case CachePolicyKind::kAgedLfu:
      return "aged-lfu";
    case CachePolicyKind::kS3Fifo:
      return "s3-fifo";
    case CachePolicyKind::kNextUse:
      return "next-use";
  }
  return "";
}

CachePolicyKind ParseCachePolicy(std::string_view name) {
  for (const CachePolicyKind kind : kCachePolicies) {
    if (name == CachePolicyName(kind)) return kind;
  }
  Fail(ErrorCode::kInvalidArgument,
       "expert cache policy: expected lru, lfu, aged-lfu, s3-fifo or next-use, found '{}'", name);
}

std::unique_ptr<CachePolicy> MakeCachePolicy(CachePolicyKind kind, int layers,
                                             int experts_per_layer, int slots) {
  switch (kind) {
    case CachePolicyKind::kLru:
      return std::make_unique<LruPolicy>(layers, experts_per_layer, slots);
    case CachePolicyKind::kLfu:
      return std::make_unique<LfuPolicy>(layers, experts_per_layer, slots);
    case CachePolicyKind::kAgedLfu:
      return std::make_unique<AgedLfuPolicy>(layers, experts_per_layer, slots);
    case CachePolicyKind::kS3Fifo:
      return std::make_unique<S3FifoPolicy>(layers, experts_per_layer, slots);
    case CachePolicyKind::kNextUse:
      return std::make_unique<NextUsePolicy>(layers, experts_per_layer, slots);
  }
  Fail(ErrorCode::kInternal, "an unknown cache policy");
}

}  // namespace mference
