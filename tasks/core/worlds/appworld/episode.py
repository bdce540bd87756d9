"""One live episode: the conversation around an engine's session."""

import re
from typing import Protocol

from tasks.core.interfaces.world import Evaluation, Observation
from tasks.core.worlds.appworld.pool import ShellRun, Verdict
from tasks.core.worlds.appworld.prompt import NO_CODE, observed, opening

GAVE_UP = "the task was not ended with status fail"
"""The one requirement that is not the engine's: see `AppWorldEpisode.evaluate`."""

_BLOCK = re.compile(r"```[ \t]*(?:python|py)?[ \t]*\r?\n(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)


def code_blocks(text: str) -> list[str]:
    """The code blocks of an assistant turn; one that is never closed counts. The first is what a turn executes."""
    blocks: list[str] = _BLOCK.findall(text)
    return blocks


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

    def __init__(self, session: Session, official_rule: bool) -> None:
        self._session, self._official_rule = session, official_rule
        facts = session.facts
        self.prompt = opening(facts["instruction"], facts["supervisor"], facts["app_descriptions"])  # type: ignore[arg-type]

    def step(self, text: str) -> Observation:
        """Run the first code block of `text`; a block that is never closed counts. Raises as the interface says."""
        blocks = code_blocks(text)
        if not blocks:
            return Observation(NO_CODE, done=False, failed=True, code_blocks=0)
        run = self._session.run(blocks[0])
        text, ending = observed(run.output, len(blocks))
        return Observation(
            text,
            ending=ending,
            done=run.completed,
            failed=run.failed,
            api_calls=tuple(name for name, _ in run.calls),
            failed_api_calls=tuple(name for name, failed in run.calls if failed),
            code_blocks=len(blocks),
        )

    def evaluate(self) -> Evaluation:
        """The task's unit tests on the present state, by the engine's own evaluator in a process of its own.

        The engine passes an agent that did nothing wrong and then gave up (status "fail") when the task asks no
        question. Here that fails one more requirement, `GAVE_UP`, unless the official rule was asked for.
        """
        verdict = self._session.evaluate()
        failed = verdict.failed
        if verdict.status == "fail" and not verdict.question and not self._official_rule:
            failed = (*failed, GAVE_UP)
        return Evaluation(verdict.passed, failed)

    def close(self) -> None:
        """End the session's processes. Idempotent."""
        self._session.close()
