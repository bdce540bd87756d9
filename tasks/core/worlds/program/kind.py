"""The face of programs of one's own, which ask the policy through an OpenAI-compatible endpoint."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from tasks.core.config.kinds import Late
from tasks.core.config.section import UNVERSIONED
from tasks.core.config.world_settings import MeanEpisode, WorldMetric, WorldSettings
from tasks.core.interfaces.world_kind import WorldKind


class ProgramConfig(WorldSettings):
    """A program, run once for each episode with the user's rights.

    It asks for turns at OPENAI_BASE_URL with OPENAI_API_KEY, reads its task from the file LOOPLINE_TASK, draws by
    LOOPLINE_SEED and writes its result to LOOPLINE_RESULT. Tasks are of the user's own splits and difficulties (1 where
    they name none).
    """

    own_metric: ClassVar[WorldMetric] = WorldMetric("reward", "return", 1)
    scenario_sizes: ClassVar[Sequence[int]] = range(1, 2**31)
    mean_episode: ClassVar[MeanEpisode] = MeanEpisode(600, 4, 100, 100, 0.1, "assumed; the program decides")

    command: tuple[str, ...] = ()
    """Words of the command, run in `folder`. A first word `python` is the interpreter of `requirements`, or the
    pipeline's own."""
    folder: str = ""
    """Folder with the program's files and its tasks. All its files count as inputs."""
    tasks: str = "tasks.jsonl"
    """JSON Lines file within `folder`, or a folder in it with a file for each split. A line has an `id`, maybe
    `scenario`, `split`, `difficulty`, `instruction` and `solution` (the turns of one), and whatever the program
    wants. Of scenarios without a split `world.seed` deals six in ten to train, one to dev, two to Test-N, one to
    Test-C."""
    requirements: str = ""
    """File within `folder` with pinned packages: `python` is then an interpreter of its own, made on first use."""
    solved: float = Field(1.0, ge=0, le=1)
    """Least reward at which a task is solved, where the program reports no tests."""
    seconds: Annotated[float, UNVERSIONED] = Field(120.0, gt=0)
    """Longest that a program may keep the pipeline waiting, summed over an episode. Waiting for the policy is free."""

    @property
    def source_files(self) -> Path | None:
        """The folder with the program."""
        return Path(self.folder) if self.folder else None


WORLD = WorldKind(
    settings=ProgramConfig,
    write=Late("tasks.core.worlds.program.world:write_program"),
    open=Late("tasks.core.worlds.program.world:open_program"),
)
