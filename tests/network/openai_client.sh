#!/bin/sh
# The official `openai` package for Node against `mference serve` with the demo model.
#
#   tests/network/openai_client.sh BUILD_DIR
#
# The package is fetched once, as the lock file pins it, and kept in BUILD_DIR/network. Exit status:
# 0 all passed, 1 failures, 77 npm is missing or cannot fetch.
set -u

if [ $# -ne 1 ]; then
  echo "usage: $0 BUILD_DIR" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd) || exit 2
scratch=$build/network/openai_client

if [ ! -x "$build/mference" ]; then
  echo "$build/mference is not built" >&2
  exit 2
fi
if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
  echo "SKIPPED: openai client: Node is not installed"
  exit 77
fi
mkdir -p "$scratch" || exit 2
if ! cmp -s "$here/openai_client/package-lock.json" "$scratch/installed-lock.json"; then
  cp "$here/openai_client/package.json" "$here/openai_client/package-lock.json" "$scratch" || exit 2
  if ! npm ci --prefix "$scratch" --no-audit --no-fund --ignore-scripts --loglevel=error; then
    echo "SKIPPED: openai client: npm cannot fetch it"
    exit 77
  fi
  cp "$scratch/package-lock.json" "$scratch/installed-lock.json" || exit 2
fi
cp "$here/openai_client/client_test.js" "$scratch" || exit 2

MFERENCE_HOME=$scratch/home
export MFERENCE_HOME
[ -d "$MFERENCE_HOME/models/demo.gturbo" ] ||
  "$build/mference" install --from "$here/../../models/demo" demo --quiet || exit 1

: >"$scratch/ready"  # an earlier run's says that it is ready
"$build/mference" serve demo --port 0 --memory 1GiB --context 4096 \
  >"$scratch/ready" 2>"$scratch/server.log" &
server=$!
trap 'kill "$server" 2>/dev/null' EXIT
tries=0
while ! grep -q 'ready at' "$scratch/ready"; do
  tries=$((tries + 1))
  if ! kill -0 "$server" 2>/dev/null || [ "$tries" -gt 600 ]; then
    cat "$scratch/server.log"
    echo "FAILED: the server does not start"
    exit 1
  fi
  sleep 0.1
done
url=$(sed -n 's/.* ready at \([^ ]*\) .*/\1/p' "$scratch/ready")

node "$scratch/client_test.js" "$url/v1" demo
status=$?
kill "$server"
wait "$server"
stopped=$?
trap - EXIT
if [ "$status" -ne 0 ] || [ "$stopped" -ne 0 ]; then
  tail -n 40 "$scratch/server.log"
  echo "FAILED: client status $status, server status $stopped"
  exit 1
fi
