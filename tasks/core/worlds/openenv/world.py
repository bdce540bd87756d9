"""The world: the tasks in a folder, and a server session for each episode; a live episode on such a session."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from weakref import WeakSet

from tasks.core.config.splits import Split
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.listed_tasks import ListedTasks, described
from tasks.core.interfaces.world import Evaluation, Observation, WorldFault
from tasks.core.processes.event_loop import EventLoopThread
from tasks.core.text_games.task_files import read_tasks
from tasks.core.worlds.openenv.client import ActionRefused, Session, StepOutcome, check_server, others_done
from tasks.core.worlds.openenv.conversation import (
    OpenEnvMismatch,
    ResetTask,
    filled,
    judged,
    opening,
    shown,
    turn_action,
)
from tasks.core.worlds.openenv.kind import OpenEnvConfig

_UNREADABLE = "There is no action in your answer."
_REFUSED = "That is no action here."
_CALL = ("openenv.step",)


class OpenEnvEpisode:
    """An episode (see `tasks.core.interfaces.world.Episode`). A turn without a valid action counts and earns 0."""

    def __init__(
        self, session: Session, name: str, instruction: str, config: OpenEnvConfig, code_blocks: CodeBlocks
    ) -> None:
        """Begin the episode; `name` names it in messages."""
        self._session, self._config, self._code_blocks, self._name = session, config, code_blocks, name
        self._turns, self._total = 0, 0.0
        self._is_paid: bool | None = None
        """Whether the steps before the last had rewards; None before the first step."""
        self._last = session.opening
        self.prompt = opening(self._last.observation, instruction, config)

    def step(self, text: str) -> Observation:
        """Play the turn's action. A turn after the end changes nothing. Raises WorldFault, OpenEnvMismatch."""
        if self._over:
            return Observation("The episode is over.", done=True, failed=True, code_blocks=0, reward=0.0)
        self._turns += 1
        action, blocks = turn_action(text, self._config, self._code_blocks)
        if action is None:
            return self._bad_turn(_UNREADABLE, blocks)
        try:
            self._last = self._session.step(action)
            reward = self._reward(self._last)
        except ActionRefused:
            return self._bad_turn(_REFUSED, blocks)
        except OpenEnvMismatch as error:
            raise OpenEnvMismatch(f"{self._name}, turn {self._turns}: {error}") from error
        self._total += reward
        seen = shown(self._last.observation, self._config.observation)
        return Observation(seen, done=self._over, api_calls=_CALL, code_blocks=blocks, reward=reward)

    def evaluate(self) -> Evaluation:
        """Return the server's verdict, or the verdict from the rewards so far. Raises OpenEnvMismatch."""
        try:
            return judged(self._last.observation, self._total, self._config.verdict, ended=self._last.done)
        except OpenEnvMismatch as error:
            raise OpenEnvMismatch(f"{self._name}: {error}") from None

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def _reward(self, outcome: StepOutcome) -> float:
        """Return the reward of a step. Raises OpenEnvMismatch for a null that does not mean zero.

        A server gives a reward with every step, or only with the last. It sends NaN as null.
        """
        given, verdict = outcome.reward, self._config.verdict
        decides = not (verdict.success and verdict.score)
        if given is None and (self._is_paid or (outcome.done and decides)):
            raise OpenEnvMismatch("the step's reward is null or NaN, not a number")
        if given is not None and self._is_paid is False and not outcome.done:
            raise OpenEnvMismatch("the step has a reward, but the reward of an earlier step was null or NaN")
        self._is_paid = given is not None
        return given or 0.0

    def _bad_turn(self, text: str, blocks: int) -> Observation:
        return Observation(text, done=self._over, failed=True, code_blocks=blocks, reward=0.0)

    @property
    def _over(self) -> bool:
        return self._last.done or self._turns >= self._config.max_turns


_LEFT_S = 12.0
"""Longer than `websockets` waits for the end of a connection to a server that hangs."""


class OpenEnvWorld(ListedTasks[ResetTask]):
    """A `World` and `Demonstrating` (see `tasks.core.interfaces.world`). Contacts the server at the first episode."""

    def __init__(
        self, tasks: Mapping[Split, Sequence[ResetTask]], config: OpenEnvConfig, code_blocks: CodeBlocks
    ) -> None:
        super().__init__(tasks, described)
        self._config, self._code_blocks = config, code_blocks
        self._lock, self._closed = threading.Lock(), False
        self._loop: EventLoopThread | None = None
        self._sessions: WeakSet[Session] = WeakSet()

    def open(self, task_id: str, seed: int) -> OpenEnvEpisode:
        """Reset a session. Raises KeyError for an unknown task, WorldFault, OpenEnvUnavailable, OpenEnvMismatch."""
        task = self.task(task_id)
        with self._lock:
            if self._closed:
                raise WorldFault("the world is closed")
            if self._loop is None:  # of all sessions
                check_server(self._config)
                self._loop = EventLoopThread("openenv")
        session = Session(self._config, filled(task.reset, {"$rollout_seed": seed}), self._loop)
        self._sessions.add(session)
        try:
            name = f"episode of task {task_id} with seed {seed}"
            return OpenEnvEpisode(session, name, task.instruction, self._config, self._code_blocks)
        except BaseException:
            session.close()
            raise

    def demonstration(self, task_id: str) -> list[str]:
        """Return the task's solution from params.yaml; see `Demonstrating`. Raises ValueError if there is none."""
        solution = self.task(task_id).solution
        if not solution:
            raise ValueError(f"params.yaml has no solution for {task_id}; name it in world.openenv.splits")
        return list(solution)

    def close(self) -> None:
        """End all sessions. Idempotent; episodes still in use raise WorldFault."""
        with self._lock:
            self._closed, loop = True, self._loop
            sessions = list(self._sessions)
        for session in sessions:
            session.close()
        if loop is not None and not loop.is_closed:
            loop.run(others_done(_LEFT_S))
            loop.close()


def open_openenv(config: OpenEnvConfig, code_blocks: CodeBlocks, folder: Path) -> OpenEnvWorld:
    """Open the world in `folder`. Raises ArtifactError naming file, line and rule."""
    return OpenEnvWorld(read_tasks(folder, ResetTask), config, code_blocks)
