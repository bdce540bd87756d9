#!/usr/bin/env bash
# The smoke profile on a fresh clone: first `dvc repro`, then the warm flow must find everything up to date.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
clone=$(mktemp -d)
trap 'rm -rf "$clone"' EXIT
git clone --quiet "$root" "$clone"
cd "$clone"
export PATH="$root/.venv/bin:$PATH" PYTHONPATH="$clone"

export ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=COMPATIBLE # the bits of docs/results/published/smoke, on any x86-64 machine
loopline configure smoke
dvc repro --quiet
loopline run | tee pipeline.log
grep -q "stages are up to date" pipeline.log
loopline verify smoke || echo "the smoke run differs from docs/results/published/smoke, as other code may"
dvc metrics show >/dev/null
dvc plots show --out plots >/dev/null
