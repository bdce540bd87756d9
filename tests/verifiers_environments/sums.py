"""A single-turn environment: add two numbers, and answer in a tag."""

import re

import verifiers.v1 as vf


class SumConfig(vf.TasksetConfig):
    most: int = 9
    """Largest summand."""
    without_answer: bool = False
    """Leave the answer of one row out."""


class SumData(vf.TaskData):
    answer: str
    turns: str


class SumTask(vf.Task[SumData]):
    @vf.reward(weight=0.9)
    async def correct(self, trace: vf.Trace) -> float:
        found = re.search(r"<answer>(.*?)</answer>", trace.last_reply, re.DOTALL)
        return float(found is not None and found[1].strip() == self.data.answer)

    @vf.reward(weight=0.1)
    async def in_tags(self, trace: vf.Trace) -> float:
        return float("<answer>" in trace.last_reply and "</answer>" in trace.last_reply)

    @vf.metric
    async def characters(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply))


class SumTaskset(vf.Taskset[SumTask, SumConfig]):
    def load(self):
        for first in range(self.config.most + 1):
            for second in range(self.config.most + 1):
                answer = "" if self.config.without_answer and (first, second) == (1, 2) else str(first + second)
                yield SumTask(
                    SumData(
                        system_prompt="You add numbers.",
                        prompt=f"What is {first} plus {second}? Put the sum between <answer> and </answer>.",
                        answer=answer,
                        turns=f"<answer>{answer}</answer>",
                    ),
                    self.config.task,
                )


__all__ = ["SumTaskset"]
