#!/usr/bin/env bash
# All that this project wants to know of a GPU: a line for each goal, pass, fail or not run, and results/gpu/report.json.
#
#     tests/benchmarks/gpu/check.sh                                # every part; without CUDA the same in little
#     tests/benchmarks/gpu/check.sh --seconds 540 mfu memory vllm  # some parts, within a time
#     tests/benchmarks/gpu/check.sh --cpu                          # in little, whatever is there: the rehearsal
#     tests/benchmarks/gpu/check.sh --report                       # the lines again, from the results that are there
#
# $PYTHON (default: python) is the interpreter, $LOOPLINE_RESULTS (default: tests/benchmarks/results) where it writes.
# A part that lacks something says so; one that fails or takes too long leaves the others alone.
set -eu
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
cd "$root"
export PYTHONPATH=$root:$root/tests/benchmarks${PYTHONPATH:+:$PYTHONPATH} TOKENIZERS_PARALLELISM=false
export PYTORCH_NVML_BASED_CUDA_CHECK=1 # asks for CUDA without touching it: parts are forked from one process (parts.py)
exec "${PYTHON:-python}" -m gpu "$@"
