#include "install/remote_install.h"

#include <mutex>

#include "base/error.h"
#include "install/install_paths.h"

namespace mference {

RemoteTarget ResolveRemote(std::string_view model, std::string_view revision) {
  RemoteTarget target;
  const PinnedSource* pinned = FindPinned(model);
  if (pinned != nullptr) {
    target.repository = pinned->repository;
    target.revision = revision.empty() ? pinned->revision : revision;
    target.name = pinned->name;
    if (target.revision == pinned->revision) target.expected = pinned;
    return target;
  }
  const size_t slash = model.find('/');
  if (slash == std::string_view::npos) {
    std::string names;
    for (const PinnedSource& source : PinnedSources()) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", source.name);
    }
    Fail(ErrorCode::kNotFound, "no model '{}' in the catalogue ({}); ORG/REPO names a repository",
         model, names);
  }
  target.repository = model;
  target.revision = revision.empty() ? "main" : revision;
  target.name = model.substr(slash + 1);
  RequireModelName(target.name);
  return target;
}

InstallEvent EventOf(const RetryNotice& notice) {
  return {.kind = InstallEvent::Kind::kRetry,
          .phase = InstallPhase::kCopying,
          .file = notice.label,
          .message = notice.detail};
}

InstallResult InstallRemote(const RemoteTarget& target, RemoteOptions remote,
                            InstallOptions options) {
  remote.repository = target.repository;
  remote.revision = target.revision;
  if (remote.cancelled == nullptr) remote.cancelled = options.cancelled;
  options.expected = target.expected;
  if (options.output.empty()) options.output = ModelPath(target.name);

  // Events come from the installing thread and, for retries, from fetching threads.
  std::mutex mutex;
  const InstallEventSink sink = options.on_event;
  const auto emit = [&mutex, &sink](const InstallEvent& event) {
    if (!sink) return;
    const std::lock_guard lock(mutex);
    sink(event);
  };
  options.on_event = emit;
  const auto on_retry = remote.on_retry;
  remote.on_retry = [&emit, &on_retry](const RetryNotice& notice) {
    if (on_retry) on_retry(notice);
    emit(EventOf(notice));
  };

  RemoteSource source(std::move(remote));
  InstallResult result = Install(source, options);
  for (const RetryNotice& notice : source.retries()) {
    result.audit.retries.push_back(
        {.label = notice.label, .attempt = notice.attempt, .detail = notice.detail});
  }
  return result;
}

}  // namespace mference
