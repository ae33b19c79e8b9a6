#!/usr/bin/env bash
# check_format.sh [--fix]: every C++ file is laid out as clang-format 14 does it. Other versions differ in details, so
# with them the check is skipped (exit 77), and --fix refuses.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/steps.sh"
cd "$RHAPSODE_ROOT"

pinned=14
tool=$(command -v clang-format-$pinned || command -v clang-format || true)
[ -n "$tool" ] || fail "clang-format is not installed: run make setup."
found=$("$tool" --version | grep -oE 'version [0-9]+' | head -n 1 | cut -d ' ' -f 2)
if [ "$found" != "$pinned" ]; then
  [ "${1:-}" != --fix ] || fail "clang-format $found lays code out differently: make format needs clang-format $pinned."
  say "check_format: skipped, clang-format $found is not the pinned version $pinned"
  exit 77
fi
mapfile -d '' files < <(git ls-files -z --cached --others --exclude-standard '*.h' '*.cpp' '*.cu' '*.cuh')
if [ "${1:-}" = --fix ]; then
  printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 8 "$tool" -i
  exit 0
fi
report=$(mktemp)
trap 'rm -f "$report"' EXIT
if ! printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 8 "$tool" --dry-run --Werror 2>"$report"; then
  grep -E '^[^ ]+:[0-9]+:[0-9]+: error' "$report" | cut -d : -f 1 | sort | uniq -c
  fail "The files above are not laid out by clang-format: run make format."
fi
say "check_format: ${#files[@]} files are laid out by clang-format $pinned"
