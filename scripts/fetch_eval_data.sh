#!/usr/bin/env bash
# Fetches the public data sets of `rhapsode eval` into a folder: scripts/fetch_eval_data.sh FOLDER
#
# Every file is pinned by its repository's commit, and by SHA-256 where it is kept as it is (eval/data.manifest). Files
# that are there and right are left alone. About 40 MB. Needs curl, sha256sum and python3.
set -euo pipefail

if [[ $# -ne 1 || $1 == -* ]]; then
  echo "usage: $0 FOLDER" >&2
  exit 2
fi
folder=$1
manifest=$(dirname "$0")/../eval/data.manifest
base=${RHAPSODE_EVAL_BASE:-https://raw.githubusercontent.com}

is_right() {  # FILE SHA256
  [[ -s $1 ]] && { [[ $2 == - ]] || [[ $(sha256sum < "$1" | cut -d' ' -f1) == "$2" ]]; }
}

# HotpotQA and 2WikiMultihopQA come from a repository that added fields of its own: only the published ones are kept,
# and of 2WikiMultihopQA only the questions that have paragraphs.
reduce() {  # FILE
  python3 - "$1" <<'PYTHON'
import json
import sys

path = sys.argv[1]
with open(path, encoding="utf-8") as file:
    records = json.load(file)
added = ("reranked_ret_res", "top_rank_questions", "qa_pairs", "explanation")
kept = [{key: value for key, value in record.items() if key not in added} for record in records if record.get("context")]
with open(path, "w", encoding="utf-8") as file:
    json.dump(kept, file)
PYTHON
}

while read -r sha256 place repository commit path; do
  [[ -z $sha256 || $sha256 == \#* ]] && continue
  target=$folder/$place
  is_right "$target" "$sha256" && continue
  mkdir -p "$(dirname "$target")"
  curl --fail --silent --show-error --location --retry 5 --retry-delay 2 \
    --output "$target.part" "$base/$repository/$commit/$path"
  [[ $sha256 == - ]] && reduce "$target.part"
  if ! is_right "$target.part" "$sha256"; then
    echo "$0: $place is not the file that the manifest names; it is left at $target.part" >&2
    exit 1
  fi
  mv "$target.part" "$target"
  echo "$place"
done < "$manifest"
echo "all sets are in $folder"
