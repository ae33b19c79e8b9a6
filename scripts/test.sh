#!/usr/bin/env bash
# test.sh fast: the release build's fast tests.   test.sh all: everything that can be checked on one machine.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/steps.sh"
cd "$RHAPSODE_ROOT"

export CTEST_OUTPUT_ON_FAILURE=1 CTEST_PARALLEL_LEVEL="${JOBS:-$(nproc)}"
RHAPSODE_TEST_MODELS=$RHAPSODE_HOME/models
export RHAPSODE_TEST_MODELS
export RHAPSODE_REQUIRE_MODELS="smollm2-135m"
export OMP_WAIT_POLICY=passive  # several tests at once: spinning at barriers would take the others' cores

need_writable "$RHAPSODE_HOME"
build/rhapsode pull smollm2-135m

case ${1:?fast or all} in
  fast)
    exec ctest --test-dir build -LE slow --no-tests=error
    ;;
  all)
    build/rhapsode pull qwen2.5-coder-0.5b
    RHAPSODE_REQUIRE_MODELS+=" qwen2.5-coder-0.5b"
    for preset in debug asan tsan fuzz; do
      scripts/build.sh "$preset"
    done
    scripts/build.sh release
    scripts/tidy.sh --all
    ctest --preset debug -LE slow
    ctest --preset asan -LE 'slow|no-sanitizer'
    CTEST_PARALLEL_LEVEL=1 ctest --preset tsan -LE 'slow|no-sanitizer'
    ctest --preset fuzz
    exec ctest --test-dir build --no-tests=error
    ;;
  *) fail "test.sh knows fast and all, not $1." ;;
esac
