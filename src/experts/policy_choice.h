// Cache policies by name.
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "experts/cache_policy.h"

namespace mference {

enum class CachePolicyKind { kLru, kLfu, kAgedLfu, kS3Fifo, kNextUse };

inline constexpr std::array kCachePolicies = {CachePolicyKind::kLru, CachePolicyKind::kLfu,
                                              CachePolicyKind::kAgedLfu, CachePolicyKind::kS3Fifo,
                                              CachePolicyKind::kNextUse};

// "lru", "lfu", "aged-lfu", "s3-fifo", "next-use".
std::string_view CachePolicyName(CachePolicyKind kind);
// Throws kInvalidArgument.
CachePolicyKind ParseCachePolicy(std::string_view name);

std::unique_ptr<CachePolicy> MakeCachePolicy(CachePolicyKind kind, int layers,
                                             int experts_per_layer, int slots);

}  // namespace mference
