# Installs Debian or Ubuntu packages that are missing. Sourced by ./quickstart and ./test.

# What building and running needs.
build_packages=(g++ cmake ninja-build pkg-config libfmt-dev nlohmann-json3-dev libcli11-dev
                libssl-dev libpcre2-dev libsimdjson-dev liburing-dev libcurl4-openssl-dev ca-certificates)
# Boost of 1.81 or later. Debian 12 has it beside an older default, newer releases as their default.
case $(. /etc/os-release 2>/dev/null && echo "${VERSION_CODENAME:-}") in
  bookworm) build_packages+=(libboost1.81-dev) ;;
  *) build_packages+=(libboost-dev) ;;
esac
# What the tests need besides.
test_packages=(curl clang clang-format libclang-rt-dev libgtest-dev libgmock-dev)
# Cross-compiled kernels under an emulator.
cross_packages=(g++-aarch64-linux-gnu qemu-user-static googletest)
# Checks that fetch packages.
network_packages=(nodejs npm)

# ensure_packages NAME...: installs those that are not there yet, and says which.
ensure_packages() {
  if ! command -v dpkg-query >/dev/null; then
    echo "This is not a Debian or Ubuntu system; make sure that these are installed: $*" >&2
    return 0
  fi
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then return 0; fi
  echo "Installing packages: ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "error: these packages are missing and need root to install: ${missing[*]}" >&2
      echo "Run as root: apt-get install ${missing[*]}" >&2
      return 1
    fi
    as_root=(sudo)
  fi
  local log
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get update -q &&
         "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
           apt-get install -y -q --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    echo "error: installing packages failed:" >&2
    tail -n 20 "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

# configure_and_build PRESET [TARGET...]
configure_and_build() {
  local preset=$1
  shift
  cmake --preset "$preset" -DMFERENCE_BUILD_TESTS="${build_tests:-ON}" >/dev/null
  cmake --build --preset "$preset" "${@/#/--target=}"
}
