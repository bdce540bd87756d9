#!/usr/bin/env bash
# Make .venv, or bring it up to date. Quick when there is nothing to do: a stamp holds what was installed last.
# CONSTRAINTS=/dev/null takes the newest versions that pyproject.toml allows, in place of the tested ones.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
export CONSTRAINTS=${CONSTRAINTS:-.ci/constraints.txt}
fail() { echo "setup: $*" >&2; exit 1; }

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11, 5))' || fail "needs Python 3.11.5 or newer; PYTHON=... names one"
wanted=$(cat pyproject.toml "$CONSTRAINTS" | git hash-object --stdin)
if [ "$(cat .venv/.installed 2>/dev/null || true)" = "$wanted" ]; then exit 0; fi

echo "setup: installing the environment into .venv (a few minutes the first time)" >&2
if [ ! -x .venv/bin/python ]; then
    "$python" -m venv .venv || fail "python's venv module is missing (Debian: apt-get install python3-venv)"
fi
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
.venv/bin/python -m pip install --quiet -c "$CONSTRAINTS" uv </dev/null

# uv takes half of pip's processor time, and its cache serves a machine's other clones. pip's configuration decides the index.
# Nothing is compiled here: a run imports a twelfth of the 32,000 files, and to compile all takes two minutes of a core.
install() {
    .venv/bin/python - "$@" <<'END'
import os, runpy, sys, uv

index = runpy.run_path("tasks/core/interpreters/package_index.py")["uv_index_variables"]()
options = ["--quiet", "--python", sys.executable, "-c", os.environ["CONSTRAINTS"]]
variables = os.environ | index
os.execve(uv.find_uv_bin(), ["uv", "pip", "install", *options, *sys.argv[1:]], variables)
END
}
install -e '.[dev]'
echo "$PWD" > "$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/checkout.pth" # flows, tasks
install --no-deps openenv # its list has gradio
echo "$wanted" > .venv/.installed
