# Sourced by the scripts: one sentence on failure, and progress for long steps.

RHAPSODE_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
RHAPSODE_LOGS=$RHAPSODE_ROOT/.deps/logs

say() { printf '%s\n' "$*"; }

# fail "One sentence: what is wrong, where, what to do."
fail() {
  printf 'rhapsode: %s\n' "$*" >&2
  exit 1
}

# The sentence for a log that ended in failure.
explain_failure() {  # WHAT LOG
  local what=$1 log=$2
  if grep -qE 'No space left on device|ENOSPC|not enough free disk space' "$log"; then
    fail "$what failed because the disk is full: free some space (see $log) and run the same command again."
  elif grep -qE 'Temporary failure (in name resolution|resolving)|Could not resolve|Network is unreachable|Failed to establish|Connection (refused|timed out|reset)|ConnectTimeout|Max retries exceeded|Unable to connect|SSLError' "$log"; then
    fail "$what failed because the network cannot be reached: check the connection or proxy (see $log) and run the same command again."
  elif grep -qE 'Permission denied|are you root\?|Operation not permitted|Read-only file system' "$log"; then
    fail "$what failed because permission was denied: check who owns the folder or run it as a user who may (see $log)."
  elif grep -q 'DO NOT MATCH THE HASHES' "$log"; then
    fail "$what failed because a downloaded package is not the pinned one: do not use it, and see $log."
  fi
  grep -E '(error|Error):? ' "$log" | tail -n 20 >&2 || tail -n 15 "$log" >&2
  fail "$what failed; the last lines are above and the whole log is $log."
}

# run_step "Building x" command...: runs it with its output in a log; shows elapsed seconds and ninja's [n/m].
run_step() {
  local what=$1
  shift
  mkdir -p "$RHAPSODE_LOGS"
  local log start=$SECONDS last_line=0 note elapsed pause=0.2
  log=$RHAPSODE_LOGS/$(printf '%s' "$what" | tr -cs 'A-Za-z0-9' '-' | tr 'A-Z' 'a-z').log
  "$@" >"$log" 2>&1 </dev/null &
  local pid=$!
  trap 'kill "$pid" 2>/dev/null; exit 130' INT TERM
  while kill -0 "$pid" 2>/dev/null; do
    elapsed=$((SECONDS - start))
    note=$(tail -n 5 "$log" | cut -c 1-200 | grep -oE '\[[0-9]+/[0-9]+\]' | tail -n 1 || true)
    if [ -t 1 ]; then
      printf '\r\033[K  %s ... %d s %s ' "$what" "$elapsed" "$note"
    elif [ $((elapsed - last_line)) -ge 30 ]; then
      printf '  %s ... %d s %s\n' "$what" "$elapsed" "$note"
      last_line=$elapsed
    fi
    [ "$elapsed" -lt 5 ] || pause=1  # short at first, so that short steps stay short
    sleep "$pause"
  done
  trap - INT TERM
  local code=0
  wait "$pid" || code=$?
  [ -t 1 ] && printf '\r\033[K'
  [ "$code" -eq 0 ] || explain_failure "$what" "$log"
  printf '  %s: done in %d s\n' "$what" $((SECONDS - start))
}

# need_space FOLDER MEGABYTES WHAT
need_space() {
  local folder=$1 need=$2 what=$3 free
  while [ ! -d "$folder" ]; do folder=$(dirname "$folder"); done
  free=$(df -Pm "$folder" | awk 'NR == 2 { print $4 }')
  [ "$free" -ge "$need" ] ||
    fail "Not enough disk space for $what: $folder has $free MB free and $need MB are needed; free some and run the same command again."
}

# need_writable FOLDER: makes the folder if need be; it must be writable.
need_writable() {
  { mkdir -p "$1" && [ -w "$1" ]; } 2>/dev/null ||
    fail "No permission to write in $1: change its owner or run as a user who may write there."
}

# The folder of downloaded models and caches; exported, so that the program and the scripts mean the same one.
export RHAPSODE_HOME="${RHAPSODE_HOME:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/rhapsode}"
