// `mference install NAME` and `mference install ORG/REPO` in one call.
#pragma once

#include <string>
#include <string_view>

#include "install/installer.h"
#include "install/remote_source.h"

namespace mference {

// What a command line's MODEL and --revision stand for.
struct RemoteTarget {
  std::string repository;
  std::string revision;
  std::string name;                        // of the installed model
  const PinnedSource* expected = nullptr;  // what it must turn out to be
};

// A catalogue name means its pin. ORG/REPO is looked up in the catalogue too; another repository
// (a mirror, a conversion of one's own) is read at `main` or `revision` and installs under the
// repository's name as whatever its index says it is. An explicit `revision` other than the pin's
// gives up the pin. kNotFound for a name that is neither.
RemoteTarget ResolveRemote(std::string_view model, std::string_view revision);

// A retry as an event; of an install or a repair.
InstallEvent EventOf(const RetryNotice& notice);

// Installs `target`; `options.output` is set here unless it was given, `remote` is completed with
// repository and revision. A source that matches no pin is installed with a warning that names its
// index digest.
InstallResult InstallRemote(const RemoteTarget& target, RemoteOptions remote,
                            InstallOptions options);

}  // namespace mference
