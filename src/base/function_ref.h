// A non-owning reference to a callable: what a thread pool takes without allocating.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace mference {

template <typename Signature>
class FunctionRef;

// Refers to a callable that must outlive every call through the reference.
template <typename Result, typename... Args>
class FunctionRef<Result(Args...)> {
 public:
  // Implicit, so that a lambda can be passed where a reference is expected.
  template <typename Callable>
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, FunctionRef> &&
           std::is_invocable_r_v<Result, Callable&, Args...>)
      // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload)
      FunctionRef(Callable&& callable)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<Callable>*>(object))(
              std::forward<Args>(args)...);
        }) {}

  Result operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

}  // namespace mference
