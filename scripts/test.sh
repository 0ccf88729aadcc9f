#!/bin/bash
# Builds everything and runs all tests.  usage: scripts/test.sh [PRESET [CTEST ARGUMENTS]]   (default: release)
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install-deps.sh

preset=${1:-release}
shift || true
cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset"
ctest --preset "$preset" --parallel "$(nproc)" "$@"
