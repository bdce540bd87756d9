"""A single-turn environment: say which of three letters comes last."""

import random
import string

import verifiers.v1 as vf


class LettersConfig(vf.TasksetConfig):
    rows: int = 900
    letters: int = 3
    """Letters of a question; all differ."""


class LettersData(vf.TaskData):
    answer: str


class LettersTask(vf.Task[LettersData]):
    @vf.reward
    async def last(self, trace: vf.Trace) -> float:
        return float(trace.last_reply.strip() == self.data.answer)


class LettersTaskset(vf.Taskset[LettersTask, LettersConfig]):
    def load(self):
        drawn = random.Random(11)
        for _ in range(self.config.rows):
            said = drawn.sample(string.ascii_lowercase, self.config.letters)
            prompt = f"Which comes last: {', '.join(said)}?"
            yield LettersTask(LettersData(prompt=prompt, answer=said[-1]), self.config.task)


__all__ = ["LettersTaskset"]
