#!/usr/bin/env bash
# The smoke profile on a fresh clone: first `dvc repro`, then the warm flow must find everything up to date.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
clone=$(mktemp -d)
trap 'rm -rf "$clone"' EXIT
git clone --quiet "$root" "$clone"
cd "$clone"
export PATH="$root/.venv/bin:$PATH" PYTHONPATH="$clone"

# The bits of docs/results/published/smoke, on any x86-64 machine.
export $(python -c 'from tasks.core.lineage.machine import PORTABLE; print(*("=".join(each) for each in PORTABLE.items()))')
loopline configure smoke
dvc repro --quiet
loopline run | tee pipeline.log
grep -q "stages are up to date" pipeline.log
loopline verify smoke --here || {
    echo "this code makes other bytes than docs/results/published/smoke: \`.ci/env loopline publish smoke\` publishes anew"
    exit 1
}
dvc metrics show >/dev/null
dvc plots show --out plots >/dev/null
