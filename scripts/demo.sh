#!/usr/bin/env bash
# demo.sh MODEL: fetches a model from the catalogue and lets it answer.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/steps.sh"
cd "$RHAPSODE_ROOT"

model=${1:?a name of the model catalogue}
prompt='Write a C function that reverses a string in place, and explain it in one sentence.'
need_writable "$(rhapsode_home)"
build/rhapsode pull "$model"
say
say "$ build/rhapsode generate --model $model --prompt \"$prompt\""
build/rhapsode generate --model "$model" --prompt "$prompt" --max-tokens 200
