#!/bin/bash
# usage: run.sh BINARY_DIRECTORY DIRECTORY: installs playwright-core there, as pinned, and runs the test of the page.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$2"
if ! cmp --silent "$here/package-lock.json" "$2/package-lock.json" || [[ ! -d $2/node_modules/playwright-core ]]; then
  cp "$here/package.json" "$here/package-lock.json" "$2"
  npm ci --prefix "$2" --no-audit --no-fund --silent
fi
exec node "$here/page_test.mjs" "$1" "$2" "$2"
