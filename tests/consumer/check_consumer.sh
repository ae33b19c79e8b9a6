#!/usr/bin/env bash
# check_consumer.sh BUILD SOURCE: installs the build, moves the tree elsewhere, and builds and runs a project against it
# and the installed program, with nothing of the build or the set-up in reach.
set -euo pipefail
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/first" >"$work/log" || { cat "$work/log"; exit 1; }
mv "$work/first" "$work/moved"

fails=0
expect() {  # WHAT COMMAND...
  local what=$1
  shift
  if "$@" >"$work/out" 2>&1; then echo "ok: $what"; else echo "FAILED: $what"; cat "$work/out"; fails=1; fi
}
no_foreign_path() {  # no file of the tree names the folders it was made in
  ! grep -rlF -e "$build" -e "$work/first" --include='*.cmake' "$work/moved" &&
    ! readelf -d "$work/moved/bin/rhapsode" | grep -F -e "$build" -e .venv
}
refuses_a_missing_model() {
  local output
  output=$(env -i "$work/consumer/consumer" /nonexistent.gguf) && return 1
  echo "$output"
  [[ $output == *not_found*nonexistent.gguf* ]]
}
answers() { env -i "$work/consumer/consumer" "$1" | tee /dev/stderr | grep -q '^answer: .'; }

expect "no path of the build in the installed tree" no_foreign_path
expect "the installed program starts" env -i "$work/moved/bin/rhapsode" --version
expect "the project configures" cmake -S "$source" -B "$work/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$work/moved"
expect "the project builds" cmake --build "$work/consumer"
expect "the library refuses a missing model with a sentence" refuses_a_missing_model
model=${RHAPSODE_TEST_MODELS:-}/smollm2-135m.gguf
if [ -f "$model" ]; then expect "the library answers" answers "$model"; fi
exit $fails
