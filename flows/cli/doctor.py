"""`loopline doctor`: the state of this machine, seen from a run of the present params.yaml."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from flows.cli.command import command
from tasks.core.capacity.hardware import GB, HARDWARE
from tasks.core.processes.resources import usable_cores

if TYPE_CHECKING:
    from tasks.core.config.params import Params


State = Literal["ok", "note", "lacks"]
PACKAGES = ("torch", "transformers", "peft", "dvc", "prefect", "mlflow", "ray")
OPTIONAL = ("ray",)
PORTS = {4200: "loopline deploy", 5000: "mlflow ui", 8000: "loopline serve"}
LEAST_DISK = 2 * GB
"""Room that the default run and its copies in DVC's cache take, many times over."""


@command("doctor", "Look")
def doctor() -> int:
    """Check what this machine has and lacks for a run.

    Lists versions, cores, memory, disk, GPUs, ports and the interpreters of worlds, and what of params.yaml would not
    work here. Exit code 1: something that a run needs is missing.

    \b
    loopline doctor
    """
    from rich.console import Console
    from rich.table import Table

    listed = [*findings(Path.cwd())]
    table = Table(box=None, show_header=False, pad_edge=False)
    for found in listed:
        table.add_row(found.state, found.subject, found.text)
    Console(highlight=False, markup=False).print(table)
    return 1 if any(found.state == "lacks" for found in listed) else 0


@dataclass(frozen=True)
class Finding:
    """One line of the answer."""

    subject: str
    text: str
    state: State = "ok"
    """lacks: something that this run needs is missing; note: worth knowing, and no obstacle."""


def findings(root: Path) -> Iterator[Finding]:
    """Yield what there is: software, machine, checkout, and what of params.yaml would not work here."""
    from flows.params_file import params_in
    from tasks.core.config.params import ParamsError

    yield from _software()
    yield from _machine(root)
    yield from _checkout(root)
    yield from _ports()
    try:
        params = params_in(root / "params.yaml")
    except ParamsError as error:
        yield Finding("params.yaml", str(error), "lacks")
        return
    yield from _interpreters(root, params)
    obstacles = [*_obstacles(root, params)]
    yield from (Finding("params.yaml", text, "lacks") for text in obstacles)
    if not obstacles:
        yield Finding("params.yaml", f"{' '.join(params.profiles)} can run here")


def _software() -> Iterator[Finding]:
    supported = sys.version_info >= (3, 11)
    yield Finding("Python", platform.python_version(), "ok" if supported else "lacks")
    git = shutil.which("git")
    yield Finding("git", git or "not installed", "ok" if git else "lacks")
    for name in PACKAGES:
        missing: State = "note" if name in OPTIONAL else "lacks"
        installed = _version(name)
        yield Finding(name, installed or "not installed", "ok" if installed else missing)


def _machine(root: Path) -> Iterator[Finding]:
    import psutil
    import torch

    yield Finding("cores", f"{usable_cores()} of {os.cpu_count()}")
    memory, disk = psutil.virtual_memory(), shutil.disk_usage(root)
    yield Finding("memory", f"{memory.available / GB:.1f} of {memory.total / GB:.1f} GB are free")
    yield Finding("disk", f"{disk.free / GB:.1f} GB are free", "ok" if disk.free > LEAST_DISK else "note")
    if not torch.cuda.is_available():
        yield Finding("GPU", "none that torch can use", "note")
    for number in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(number)
        yield Finding("GPU", f"{device.name}, {device.total_memory / GB:.0f} GB")


def _checkout(root: Path) -> Iterator[Finding]:
    from tasks.core.lineage.git_state import git_state

    state = git_state(root)
    yield Finding("checkout", str(state), "note" if state.dirty or not state.commit else "ok")
    if not (root / ".dvc").is_dir():
        yield Finding("DVC", "no .dvc folder here: run this in a checkout, or `dvc init`", "lacks")
        return
    from flows.dag.dvc_seam import cache_folder

    yield Finding("DVC", f"cache in {cache_folder(root)}; {'dvc.lock' if (root / 'dvc.lock').exists() else 'no run'}")
    if not os.access(root, os.W_OK):
        yield Finding("checkout", "cannot be written", "lacks")


def _ports() -> Iterator[Finding]:
    for port, user in PORTS.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken = probe.connect_ex(("127.0.0.1", port)) == 0
        yield Finding(f"port {port}", f"{'taken' if taken else 'free'} ({user})", "note" if taken else "ok")


def _interpreters(root: Path, params: Params) -> Iterator[Finding]:
    """Yield the interpreters that worlds and engines have of their own. The run makes what it needs on first use."""
    from tasks.core.config.engine import ENGINES
    from tasks.core.config.world import WORLDS
    from tasks.core.interfaces.engine_kind import find_engine
    from tasks.core.interfaces.world_kind import find_world
    from tasks.core.interpreters import INTERPRETERS

    recipes = [
        (recipe, name == params.world.name) for name in WORLDS.names() for recipe in find_world(name).interpreters
    ]
    recipes += [
        (recipe, name == params.engine.name) for name in ENGINES.names() for recipe in find_engine(name).interpreters()
    ]
    for recipe, needed in recipes:
        made = (root / INTERPRETERS / f"{recipe.name}-{recipe.digest}").is_dir()
        missing = "made on first use, which needs a package index" if needed else "not made; not needed here"
        yield Finding(f"for {recipe.name}", "made" if made else missing, "ok" if made or not needed else "note")


def _obstacles(root: Path, params: Params) -> Iterator[str]:
    """Yield why the run of these parameters would fail here, before it is begun."""
    import torch

    from flows.dag.version_stages import require_named_files
    from tasks.core.config.params import ParamsError
    from tasks.core.interfaces.engine_kind import find_engine

    try:
        require_named_files(params, root)
    except ParamsError as error:
        yield str(error)
    gpus, device = torch.cuda.device_count(), params.policy.device
    if device.startswith("cuda") and not gpus:
        yield f"policy.device: {device}, and torch finds no GPU here"
    elif device != "auto" and (fault := _fault_of_device(device)):
        yield f"policy.device: {device}: {fault}"
    on_gpu = gpus > 0 and device != "cpu"
    ranks = params.update.distributed.ranks
    if on_gpu and ranks > gpus:
        yield f"update.distributed.ranks: {ranks}, and there are {gpus} GPUs"
    yield from find_engine(params.engine.name).lacking(params.engine.own)
    if params.machines.ray.address is not None and _version("ray") is None:
        yield "machines.ray.address is set, and ray is not installed: pip install -e '.[ray]'"
    yield from _too_large(root, params, on_gpu)


def _fault_of_device(device: str) -> str | None:
    """Return why torch cannot compute there."""
    import torch

    try:
        torch.zeros(1, device=device).item()
    except (AssertionError, RuntimeError) as error:
        return str(error).splitlines()[0]
    return None


def _version(package: str) -> str | None:
    """Return the version of a package; None: it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _too_large(root: Path, params: Params, on_gpu: bool) -> Iterator[str]:
    """Yield what does not fit by `loopline plan`; the stage preflight tries it for good."""
    import psutil
    import torch

    from tasks.core.capacity.known_models import model_config
    from tasks.core.capacity.plan import make_plan
    from tasks.core.interfaces.engine_kind import find_engine

    if find_engine(params.engine.name).price(params.engine.own) is not None:  # the model is elsewhere
        return
    memory = torch.cuda.get_device_properties(0).total_memory if on_gpu else psutil.virtual_memory().available
    hardware = replace(HARDWARE["h100" if on_gpu else "cpu"], memory=float(memory))
    try:
        plan = make_plan(params, model_config(params.policy.source, root), hardware, params.update.distributed.size)
    except ValueError:  # sizes of a base model that is not here yet
        return
    yield from plan.warnings()
