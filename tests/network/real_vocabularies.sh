#!/bin/sh
# Compares the tokenizer with golden encodings of published vocabularies, which npm downloads.
#
#   tests/network/real_vocabularies.sh BUILD_DIR
#
# BUILD_DIR holds the built project; the packages go to BUILD_DIR/network/vocabularies and are kept
# there. Exit status: 0 all equal, 1 differences or a damaged download, 77 nothing could be compared
# because npm is missing or a package cannot be fetched.
set -u

if [ $# -ne 1 ]; then
  echo "usage: $0 BUILD_DIR" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
check=$1/tests/network/tokenizer_goldens_check
scratch=$1/network/vocabularies
goldens=$here/../data/tokenizers/real

if [ ! -x "$check" ]; then
  echo "$check is not built" >&2
  exit 2
fi
if ! command -v npm >/dev/null; then
  echo "SKIPPED: published vocabularies: npm is not installed"
  exit 77
fi
mkdir -p "$scratch" || exit 2

# The value of a string member of the golden file's head.
member() { sed -n "1,12s/.*\"$2\": *\"\([^\"]*\)\".*/\1/p" "$1" | head -n 1; }

skipped=0
failed=0
for golden in "$goldens"/*.json; do
  package=$(member "$golden" package)
  version=$(member "$golden" version)
  file=$scratch/node_modules/$package/$(member "$golden" file)
  echo "== $package $version"
  if [ ! -f "$file" ] && ! npm install --prefix "$scratch" --no-audit --no-fund --ignore-scripts \
      --loglevel=error "$package@$version"; then
    echo "SKIPPED: $package: npm cannot fetch it"
    skipped=$((skipped + 1))
    continue
  fi
  if ! echo "$(member "$golden" sha256)  $file" | sha256sum --check --quiet; then
    echo "FAILED: $file is not the file that the goldens were made with"
    failed=$((failed + 1))
    continue
  fi
  "$check" "$file" "$golden" || failed=$((failed + 1))
done

[ "$failed" -eq 0 ] || exit 1
[ "$skipped" -eq 0 ] || exit 77
