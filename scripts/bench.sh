#!/usr/bin/env bash
# Runs every Google Benchmark program of bench/ one after the other, alone on the machine.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/steps.sh"
cd "$RHAPSODE_ROOT"

found=
for program in build/bench/*_bench; do
  [ -x "$program" ] || continue
  found=1
  say "== $(basename "$program")"
  "$program" "$@"
done
[ -n "$found" ] || fail "No benchmark program lies in build/bench: run make build first."
