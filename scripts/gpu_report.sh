#!/usr/bin/env bash
# gpu_report.sh [--models FOLDER] [--bin FOLDER] [--texts "FILE ..."] [PART ...]: what the GPU does, part by part.
#
# Parts: tests parity attention encoding find fetch judge ttft speed memory shards sanitizer (all of them when none is named). Models are
# GGUF files in the models folder, programs those of one build; no network is needed. Prints a table a part and exits 1 when a check failed.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
models=${RHAPSODE_TEST_MODELS:-${RHAPSODE_HOME:-$HOME/.cache/rhapsode}/models}
bin=$root/build
texts="$root/LICENSE $root/CONTRIBUTING.md $root/docs/architecture.md $root/docs/dependencies.md"
parts=()
while [ $# -gt 0 ]; do
  case $1 in
    --models) models=$2; shift 2 ;;
    --bin) bin=$2; shift 2 ;;
    --texts) texts=$2; shift 2 ;;
    -*) echo "gpu_report.sh: $1 is no option; see the head of the script." >&2; exit 2 ;;
    *) parts+=("$1"); shift ;;
  esac
done
[ ${#parts[@]} -gt 0 ] || parts=(tests parity attention encoding find fetch judge ttft speed memory shards sanitizer)

failed=0
# Programs lie together in a package, or each where a build puts it.
program() {
  local name=$1 found
  found=$(find "$bin" -maxdepth 5 -type f -name "$name" -perm -u+x 2>/dev/null | head -n 1)
  [ -n "$found" ] || { echo "gpu_report.sh: $name is not in $bin: build it first." >&2; exit 2; }
  printf '%s\n' "$found"
}
check() {  # WHAT COMMAND...
  local what=$1 start=$SECONDS
  shift
  if "$@"; then echo "ok      $what ($((SECONDS - start)) s)"; else echo "FAILED  $what"; failed=1; fi
}
each_model() {
  for model in smollm2-135m qwen2.5-coder-0.5b qwen2.5-coder-1.5b; do
    [ -f "$models/$model.gguf" ] && printf '%s\n' "$model"
  done
}

# Without a GPU every test is skipped, and nothing has been shown.
device_tests() {
  local output status=0
  output=$("$(program cuda_device_test)" --gtest_brief=1) || status=$?
  printf '%s\n' "$output" | tail -n 6
  [ "$status" -eq 0 ] && grep -qE 'PASSED  \] [1-9]' <<<"$output"
}
tests() {
  check "kernels against the reference in double precision" device_tests
}
parity() {
  local parity
  parity=$(program rhapsode_parity)
  for model in $(each_model); do
    # shellcheck disable=SC2086
    check "$model: float32 weights within 0.1 of libllama" "$parity" "$models/$model.gguf" --device cuda --copy f32 \
      --limit 0.1 --prompts 8 --most-tokens 2000 --steps 16 --threads "$(nproc)" $texts
    # shellcheck disable=SC2086
    check "$model: shipped weights as bf16 against float32 arithmetic on them" "$parity" "$models/$model.gguf" \
      --device cuda --peer-copy f32 --prompts 8 --most-tokens 2000 --steps 16 --threads "$(nproc)" $texts
  done
}
attention() {
  check "attention" "$(program attend_lab)"
  check "where attention went" "$(program mass_lab)"
  if python3 -c 'import torch' 2>/dev/null; then
    check "attention of others" python3 "$root/bench/peers/torch_attention.py"
  else
    echo "skipped attention of others: python3 has no PyTorch"
  fi
}
encoding() {
  for model in $(each_model); do
    check "$model: passes of 8192 rows" "$(program encode_lab)" "$models/$model.gguf"
  done
}
find_passages() {
  check "codes of 100 million tokens: the CPU's passages, found on the GPU" "$(program find_lab)"
}
fetch() {
  check "pages out of pinned memory, alone and beside matrix products" "$(program fetch_lab)"
}
judge() {
  for model in $(each_model); do
    check "$model: 40 candidates of 512 tokens" "$(program rhapsode_judge_speed)" "$models/$model.gguf" --device cuda
  done
}
# Over cached passages, by how they are read and where their KV lies.
ttft() {
  local folder
  folder=$(mktemp -d)
  for model in $(each_model); do
    # shellcheck disable=SC2086
    check "$model: time to the first token" "$(program rhapsode_ttft)" "$models/$model.gguf" "$folder/$model" \
      "$root/docs" $texts --tokens "${RHAPSODE_TTFT_TOKENS:-12000}" --device cuda --load
  done
  rm -rf "$folder"
}
speed() {
  for model in $(each_model); do
    check "$model" "$(program rhapsode)" bench --model "$models/$model.gguf" --device cuda --batch 8192 --encode
    check "$model: sequences beside one another, sampling included" "$(program rhapsode_decode_speed)" \
      "$models/$model.gguf" --device cuda --sequences 1,16,64 --sampling greedy,top-k,top-p,min-p
  done
  check "the largest logits of rows, against copying these" "$(program top_lab)"
}
memory() {
  local rhapsode folder
  rhapsode=$(program rhapsode)
  folder=$(mktemp -d)
  for model in $(each_model); do
    check "$model: reads its own documentation" "$rhapsode" add "$root/docs" --memory "$folder/$model" \
      --model "$models/$model.gguf" --device cuda --yes
    check "$model: answers from it" "$rhapsode" ask "Which library chooses the SIMD instructions at run time?" \
      --memory "$folder/$model" --model "$models/$model.gguf" --device cuda
  done
  rm -rf "$folder"
}
# Pages spread over devices: of one GPU that serves as two, and of several where there are some.
shards() {
  local parity lists=(--gpus=- --gpus 0 --gpus "0,0") gpus
  parity=$(program rhapsode_parity)
  gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader | paste -sd,)
  [ "$gpus" = 0 ] || lists+=(--gpus "$gpus")
  for model in $(each_model); do
    for list in 0,0 "$gpus"; do
      # shellcheck disable=SC2086
      check "$model over GPUs $list: float32 weights within 0.1 of libllama" "$parity" "$models/$model.gguf" --device cuda \
        --gpus "$list" --copy f32 --limit 0.1 --prompts 5 --most-tokens 2000 --steps 8 --threads "$(nproc)" $texts
    done
    check "$model: passes over 32k tokens" "$(program rhapsode_shard_speed)" "$models/$model.gguf" "${lists[@]}"
  done
}
sanitizer() {
  local device_test
  device_test=$(program cuda_device_test)
  # Every kernel: those of a pass and, on small plans, those that attend.
  for tool in memcheck racecheck; do
    check "compute-sanitizer $tool" compute-sanitizer --tool "$tool" --error-exitcode 1 "$device_test" \
      --gtest_filter='*DeviceAttend*:Cuda*:DeviceCodeSearch.A*:PageGather.*:DevicePageMemory.*:PinnedPageMemory.*:ShardMerge.*:*MixedPasses.Replayed*' --gtest_brief=1
  done
}

for part in "${parts[@]}"; do
  case $part in
    tests | parity | attention | encoding | find | fetch | judge | ttft | speed | memory | shards | sanitizer)
      printf '== %s\n' "$part"
      # find is the name of a program that this script uses.
      if [ "$part" = find ]; then find_passages; else "$part"; fi ;;
    *) echo "gpu_report.sh: there is no part '$part'." >&2; exit 2 ;;
  esac
done
exit $failed
