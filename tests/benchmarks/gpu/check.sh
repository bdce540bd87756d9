#!/usr/bin/env bash
# All that this project wants to know of a GPU, in at most 8 minutes, with what is installed:
#
#     tests/benchmarks/gpu_check.sh            # results/gpu_*.json; without CUDA the same in little: gpu_*_in_little.json
#     tests/benchmarks/gpu_check.sh --cpu      # in little, whatever is there
#
# $PYTHON (default: python) is the interpreter, $LOOPLINE_RESULTS (default: tests/benchmarks/results) where it writes.
# A part that is missing something says so in its file; one that fails or takes too long leaves the others alone.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYTHON:-python}
export LOOPLINE_RESULTS=${LOOPLINE_RESULTS:-$here/results} PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} TOKENIZERS_PARALLELISM=false
if [ "${1:-}" = --cpu ]; then export CUDA_VISIBLE_DEVICES=; fi
mkdir -p "$LOOPLINE_RESULTS"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

part() { # NAME SECONDS ARGUMENT...: one file of its own, within its own time
    local name=$1 limit=$2 code=0
    shift 2
    timeout -k 5 "$limit" "$python" "$here/gpu_$name.py" "$@" >"$log" 2>&1 || code=$?
    if [ "$code" = 0 ]; then echo "$name: done"; return; fi
    [ "$code" = 124 ] && echo "took longer than $limit s" >>"$log"
    echo "$name: failed"
    tail -n 5 "$log"
    "$python" -c 'import json, sys; print(json.dumps({"failed": sys.stdin.read()[-1000:], "exit_code": int(sys.argv[1])}, indent=2))' \
        "$code" <"$log" >"$LOOPLINE_RESULTS/gpu_${name}_failed.json"
}

rm -f "$LOOPLINE_RESULTS"/gpu_*_failed.json
part gradients 45
part kernels 50
part mfu 225 --seconds 165
part engine 45
part training 60 --seconds 40
part vllm 55
ls "$LOOPLINE_RESULTS"/gpu_*.json
