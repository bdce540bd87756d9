"""The GPU check (tests/benchmarks/gpu) on a CPU: its parts in little, its verdicts, and carrying vLLM to a machine."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

GPU = Path(__file__).parent / "benchmarks/gpu"
CHECK, CARRY, RESULTS = GPU / "check.sh", GPU / "carry.sh", GPU.parent / "results/gpu"
IN_LITTLE = ("gradients", "memory", "mfu", "architecture", "kernels", "engine", "training", "smollm2")


def check(results: Path, *arguments: str, python: str = sys.executable) -> str:
    environment = {**os.environ, "PYTHON": python, "LOOPLINE_RESULTS": str(results)}
    done = subprocess.run([CHECK, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read(results: Path, name: str) -> Any:
    return json.loads((results / f"{name}.json").read_text(encoding="utf-8"))


def verdicts(results: Path) -> dict[str, list[str]]:
    """Return the verdicts of a report's lines, by part."""
    lines = read(results, "report")["lines"]
    return {part: [one["verdict"] for one in lines if one["part"] == part] for part in {one["part"] for one in lines}}


@pytest.mark.faults  # a minute of CPU
def test_every_part_of_the_check_runs_in_little_on_a_cpu(tmp_path: Path) -> None:
    said = check(tmp_path, "--cpu")
    folder = tmp_path / "gpu_in_little"
    assert {file.stem for file in folder.iterdir()} == {*IN_LITTLE, "report"}, said
    found = {part: read(folder, part) for part in IN_LITTLE}
    assert {part["device"] for part in found.values()} == {"CPU, in little"}
    assert found["gradients"]["float32"]["difference"] < 1e-5
    assert found["kernels"]["head"]["chunked"]["max_error"] < 1e-4 < found["kernels"]["head"]["eager"]["max_error"]
    assert all(row["tokens_per_s"] > 0 for row in found["mfu"]["rows"] + [*found["engine"]["conversations"].values()])
    assert len(found["training"]["curves"][0]) == 1
    dropped = found["memory"]["dropped"]
    assert 0 <= dropped["left_gib"] < 0.01 * dropped["held_gib"]
    assert "update_policy@i001" in found["memory"]["stages"] and "score@test_challenge" in found["memory"]["stages"]
    assert [run["seed"] for run in found["smollm2"]["runs"]] == [0, 1]
    scenarios = {name for run in found["smollm2"]["runs"] for name in run["test_normal_gains"]["tgc"]}
    interval = found["smollm2"]["tgc_gain_interval"]["test_normal"]
    assert (len(scenarios), interval) == (1, None), "one scenario is no sample of tasks"
    seen = verdicts(folder)
    assert set(seen["gradients"] + seen["architecture"] + seen["kernels"] + seen["memory"]) == {"pass"}
    assert set(seen["mfu"] + seen["engine"] + seen["training"] + seen["vllm"]) == {"not run"}
    assert seen["smollm2"] == ["not run", "pass"]


@pytest.mark.vllm
def test_the_part_vllm_runs_in_little_on_its_cpu_build(tmp_path: Path) -> None:
    said = check(tmp_path, "--cpu", "vllm")
    found = read(tmp_path / "gpu_in_little", "vllm")
    assert found["vs_offline"]["engine_at_once"] > 0 and found["delivered_s"] > 0, said
    assert found["engine_mismatch"]["mean"] < 1e-3
    assert found["asleep"]["wake_s"] > 0 and found["orphans"] == 0


@pytest.mark.vllm
def test_the_part_invariance_runs_in_little_without_the_mode(tmp_path: Path) -> None:
    said = check(tmp_path, "--cpu", "invariance")
    found = read(tmp_path / "gpu_in_little", "invariance")
    assert (found["mode"], found["turns"], found["orphans"]) == (False, 8, 0), said
    assert 0 <= found["moved_again"] <= 8
    assert verdicts(tmp_path / "gpu_in_little")["invariance"] == ["not run", "pass"]


@pytest.fixture
def without_torch(tmp_path: Path) -> str:
    """Return an interpreter that has no packages."""
    stub = tmp_path / "python"
    stub.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    stub.chmod(0o755)
    return str(stub)


def test_a_part_that_fails_leaves_its_reason_and_the_others_alone(tmp_path: Path, without_torch: str) -> None:
    check(tmp_path, "--cpu", "gradients", "kernels", python=without_torch)
    for part in ("gradients", "kernels"):
        failed = read(tmp_path / "gpu_in_little", part)
        assert failed["exit_code"] == 1 and "ModuleNotFoundError" in failed["failed"]
        assert set(verdicts(tmp_path / "gpu_in_little")[part]) == {"failed"}


def test_without_time_a_part_is_not_begun(tmp_path: Path, without_torch: str) -> None:
    said = check(tmp_path, "--cpu", "--seconds", "1", "kernels", python=without_torch)
    assert "kernels: no time left" in said
    assert set(verdicts(tmp_path / "gpu_in_little")["kernels"]) == {"not run"}


def test_verdicts_follow_from_the_figures_of_the_parts(tmp_path: Path) -> None:
    rows = [
        {"model": "32b", "tokens": 8192, "mfu": 0.41, "tokens_per_s": 2900, "peak_memory_gib": 70.0},
        {"model": "7b", "tokens": 8192, "mfu": 0.35, "tokens_per_s": 11_000, "peak_memory_gib": 20.0},
        {"model": "7b", "tokens": 8192, "mfu": 0.31, "tokens_per_s": 9551, "peak_memory_gib": 90.0},
        {"model": "7b", "tokens": 16_384, "out_of_memory": True},
    ]
    planned = [{"planned_gib": 73.7, "held_before_gib": 0.02}, {"planned_gib": 25.0, "held_before_gib": 0.0}]
    disturbed = [{"planned_gib": 85.0, "held_before_gib": 61.0}, {}]
    card = {"device": "Card", "cuda": "13.0"}
    mfu = card | {"rows": [row | more for row, more in zip(rows, planned + disturbed, strict=True)]}
    vllm = card | {"skipped": "vLLM could not be installed", "orphans": 0}
    engine = card | {"conversations": {"64": {"tokens_per_s": 756.1}}, "failed": "too long"}
    (tmp_path / "gpu").mkdir()
    for name, figures in (("mfu", mfu), ("vllm", vllm), ("engine", engine)):
        (tmp_path / f"gpu/{name}.json").write_text(json.dumps(figures))
    said = check(tmp_path, "--report")
    lines = {line["name"]: line for line in read(tmp_path / "gpu", "report")["lines"]}

    def line(name: str) -> tuple[Any, ...]:
        return tuple(lines[name][key] for key in ("figure", "verdict", "reason"))

    assert line("learner's useful MFU, 32B, packs of 8K") == ("0.410 (2,900 tokens/s)", "pass", "")
    assert line("learner's useful MFU, 7B, packs of 8K") == ("0.350 (11,000 tokens/s)", "fail", "")
    assert line("learner's useful MFU, 7B, packs of 16K") == (None, "not run", "out of memory")
    assert line("planned memory, 32B, all rows") == ("1.05 of the peak (1 rows)", "pass", "")
    assert line("planned memory, 7B, all rows") == ("1.25 of the peak (1 rows)", "fail", "")
    assert line("decoding through the engine over vLLM's offline run") == (None, "not run", vllm["skipped"])
    assert line("engine in this process, 64 conversations") == ("756.1 tokens/s", "seen", "")
    assert line("engine in this process, 256 conversations") == (None, "failed", "too long")
    assert line("curve of `default` beside a CPU's") == (None, "not run", "never ran")
    assert said.splitlines()[-1] == "29 not run, 3 pass, 2 fail, 1 seen, 1 failed"


def test_the_recorded_report_is_that_of_the_recorded_figures(tmp_path: Path) -> None:
    shutil.copytree(RESULTS, tmp_path / "gpu")
    check(tmp_path, "--report")
    assert read(tmp_path / "gpu", "report")["lines"] == read(RESULTS, "report")["lines"]


def write_wheel(folder: Path, name: str) -> None:
    """Write a wheel of one module, that large that it goes into several parts."""
    folder.mkdir(parents=True)
    about = f"{name}-1.0.dist-info"
    files = {
        f"{name}/__init__.py": "",
        f"{name}/weights.py": f"BYTES = {os.urandom(100_000).hex()!r}\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{about}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        for path, text in (files | {f"{about}/RECORD": record}).items():
            wheel.writestr(path, text)


def test_what_is_carried_in_parts_becomes_vllms_interpreter(tmp_path: Path) -> None:
    """In a copy of the checkout, as the other machine has it; the machine's own packages stay importable."""
    project, carried, kept = tmp_path / "project", tmp_path / "carried", tmp_path / "kept"
    project.mkdir()
    for name in ("tests", "tasks"):
        (project / name).symlink_to(Path(__file__).parents[1] / name)
    write_wheel(carried / "wheels", "carried_vllm")
    environment = {**os.environ, "PYTHON": sys.executable, "CARRY_IMPORTS": "carried_vllm.weights psutil"}

    def carry(*arguments: str | Path) -> str:
        command = [project / "tests/benchmarks/gpu/carry.sh", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    carry("split", carried, "50K")
    parts = sorted(carried.glob("part.[0-9]*"))
    assert len(parts) > 2
    for number, part in enumerate(parts):
        load = tmp_path / f"load{number}"
        load.mkdir()
        for file in (part, carried / "part.sums"):
            (load / file.name).write_bytes(file.read_bytes())
        carry("keep", load, kept)
    said = carry("join", kept)
    assert "imported carried_vllm.weights" in said and "imported psutil" in said
    (home,) = (project / ".loopline/interpreters").glob("vllm-gpu-*")
    assert (home / "complete").exists() and (home / "bin/python").exists()


def test_a_damaged_part_is_refused(tmp_path: Path) -> None:
    write_wheel(tmp_path / "wheels", "carried_vllm")
    subprocess.run([CARRY, "split", tmp_path, "50K"], check=True, capture_output=True)
    (tmp_path / "part.001").write_bytes(b"cut off")
    done = subprocess.run([CARRY, "join", tmp_path], capture_output=True, text=True)
    assert done.returncode and "part.001" in done.stdout + done.stderr
