"""One live episode: the conversation around an engine's session."""

from typing import Protocol

from tasks.core.code_blocks import turn_code
from tasks.core.config.world import CodeBlocks
from tasks.core.interfaces.world import Evaluation, Observation
from tasks.core.worlds.appworld.kind import AppWorldConfig
from tasks.core.worlds.appworld.pool import ShellRun, Verdict
from tasks.core.worlds.appworld.prompt import NO_CODE, Prompt

GAVE_UP = "the task was not ended with status fail"
"""The one requirement that is not the engine's: see `AppWorldEpisode.evaluate`."""


class Session(Protocol):
    """The part of an engine that an episode needs: `pool.LiveEpisode`, or one on the official server."""

    @property
    def facts(self) -> dict[str, object]:
        """The task's instruction, supervisor and app_descriptions."""
        ...

    def run(self, code: str) -> ShellRun: ...

    def evaluate(self) -> Verdict: ...

    def close(self) -> None: ...


class AppWorldEpisode:
    """See `tasks.core.interfaces.world.Episode`."""

    def __init__(self, session: Session, config: AppWorldConfig, code_blocks: CodeBlocks = "first") -> None:
        self._session, self._config, self._code_blocks = session, config, code_blocks
        self._prompt = Prompt(session.facts, config.reminder)
        self.prompt = self._prompt.opening()

    def step(self, text: str) -> Observation:
        """Run the code of `text` (see `turn_code`). Raises as the interface says."""
        code = turn_code(text, self._code_blocks)
        if not code.blocks:
            return Observation(NO_CODE, done=False, failed=True, code_blocks=0)
        run = self._session.run(code.text)
        text, ending = self._prompt.observed(run.output, code)
        return Observation(
            text,
            ending=ending,
            done=run.completed,
            failed=run.failed,
            api_calls=tuple(name for name, _ in run.calls),
            failed_api_calls=tuple(name for name, failed in run.calls if failed),
            code_blocks=code.blocks,
        )

    def evaluate(self) -> Evaluation:
        """The task's unit tests on the present state, by the engine's own evaluator in a process of its own.

        The engine passes an agent that did nothing wrong and then gave up (status "fail") when the task asks no
        question. Here that fails one more requirement, `GAVE_UP`, unless the official rule was asked for.
        """
        verdict = self._session.evaluate()
        failed = verdict.failed
        if verdict.status == "fail" and not verdict.question and not self._config.official_rule:
            failed = (*failed, GAVE_UP)
        return Evaluation(verdict.passed, failed)

    def close(self) -> None:
        """End the session's processes. Idempotent."""
        self._session.close()
