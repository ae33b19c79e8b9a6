#!/usr/bin/env bash
# demo.sh MODEL: fetches a model from the catalogue and lets it answer.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/steps.sh"
cd "$RHAPSODE_ROOT"

model=${1:?a name of the model catalogue}
prompt='Write a C function that reverses a string in place, and explain it in one sentence.'
need_writable "$RHAPSODE_HOME"
build/rhapsode pull "$model"
say
say "$ build/rhapsode generate --model $model --max-tokens 200 \"$prompt\""
exec build/rhapsode generate --model "$model" --max-tokens 200 "$prompt"
