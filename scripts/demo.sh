#!/usr/bin/env bash
# demo.sh MODEL: reads the project's own documentation into a memory and asks it three questions.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/steps.sh"
cd "$RHAPSODE_ROOT"

model=${1:?a name of the model catalogue}
memory=build/demo-memory
questions=(
  'Which mode does the SQLite database of the catalog use?'
  'Which compression do the stored texts use?'
  'Which library is used for SIMD?'
)
need_writable "$RHAPSODE_HOME"
build/rhapsode pull "$model"
say
say "$ build/rhapsode add --memory $memory --model $model README.md docs"
build/rhapsode add --memory "$memory" --model "$model" --sync --yes README.md docs
for question in "${questions[@]}"; do
  say
  say "$ build/rhapsode ask --memory $memory \"$question\""
  build/rhapsode ask --memory "$memory" --verbose "$question"
done
