#!/usr/bin/env bash
# tidy.sh --changed: clang-tidy over the sources that differ from main (and what is not committed).
# tidy.sh --all: over every source of the library, the program and the tests.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/steps.sh"
cd "$RHAPSODE_ROOT"

command -v clang-tidy >/dev/null || fail "clang-tidy is not installed: run scripts/setup.sh --dev."
[ -f build/compile_commands.json ] || fail "build/compile_commands.json is missing: run make build."

list_sources() {
  case ${1:?--changed or --all} in
    --all) git ls-files 'src/*.cpp' 'tests/*.cpp' ;;
    --changed)
      {
        git diff --name-only --diff-filter=d "$(git merge-base HEAD main 2>/dev/null || echo HEAD)"
        git ls-files --others --exclude-standard
      } | grep -E '^(src|tests)/.*\.cpp$' | sort -u || true
      ;;
    *) fail "tidy.sh knows --changed and --all, not $1." ;;
  esac
}

# Only what the build compiles has a command line; a consumer project of its own does not.
sources=$(list_sources "${1:-}" | while read -r file; do
  grep -q "/$file\"" build/compile_commands.json && echo "$file" || true
done)
[ -n "$sources" ] || { say "tidy: nothing to check"; exit 0; }
run_tidy() { xargs -P "${JOBS:-$(nproc)}" -n 1 clang-tidy -p build --quiet --warnings-as-errors="*" <<<"$sources"; }
run_step "clang-tidy over $(wc -w <<<"$sources") files" run_tidy
