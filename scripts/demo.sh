#!/bin/bash
# Builds memcgd, starts it on free ports, replays a recorded trace into it, and prints the model's memory.stat beside
# what the real kernel had.  usage: scripts/demo.sh [TRACE]   (a folder of tests/fidelity/traces; default: readtwice)
set -euo pipefail
cd "$(dirname "$0")/.."
trace=tests/fidelity/traces/${1:-readtwice}
[[ -e $trace/kernel.json ]] || { echo "$0: there is no $trace; see tests/fidelity/traces" >&2; exit 2; }
scripts/install-deps.sh

cmake --preset release >/dev/null
cmake --build --preset release --target memcgd memcgctl
bin=build/release/bin

directory=$(mktemp --directory)
server=
clean_up() {
  if [[ $server ]]; then
    kill "$server" 2>/dev/null || true
    wait "$server" || true
  fi
  rm -rf "$directory"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

"$bin/memcgd" --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 --port-file "$directory/ports" 2>"$directory/log" &
server=$!
for _ in {1..200}; do
  [[ -e $directory/ports ]] && break
  kill -0 "$server" 2>/dev/null || break
  sleep 0.05
done
[[ -e $directory/ports ]] || { echo "$0: memcgd did not start:" >&2; cat "$directory/log" >&2; exit 1; }
address=$(sed -n 's/^listen=//p' "$directory/ports")

scripts/compare_table.py --times "$trace/kernel.json" >"$directory/times"
"$bin/memcgctl" replay "$trace/trace.txt.zst" --server "$address" --no-zero-page \
  --stat-at "$directory/times" --output json >"$directory/model.json"
scripts/compare_table.py "$trace/kernel.json" "$directory/model.json"
