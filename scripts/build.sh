#!/usr/bin/env bash
# build.sh PRESET: configures (when something changed) and builds one preset of CMakePresets.json.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/steps.sh"
cd "$RHAPSODE_ROOT"

preset=${1:?a preset of CMakePresets.json}
folder=build-$preset
[ "$preset" = release ] && folder=build

stamp=$folder/.rhapsode-stamp
# The prefix of ggml and llama is found at configure time: a new one needs a fresh cache.
key=$(cat CMakePresets.json .venv*/.rhapsode-stamp 2>/dev/null | sha256sum)
if [ "$(cat "$stamp" 2>/dev/null)" != "$key" ] || [ ! -f "$folder/build.ninja" ]; then
  need_space "$RHAPSODE_ROOT" 1000 "the build"
  rm -f "$folder/CMakeCache.txt"
  run_step "Configuring $preset" cmake --preset "$preset"
  echo "$key" >"$stamp"
fi
run_step "Building $preset" cmake --build "$folder" -j "${JOBS:-$(nproc)}"
