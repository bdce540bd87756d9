"""A multi-turn environment with an Env of its own: guess a number, told each time whether it is higher or lower."""

import random
import re

import verifiers.v1 as vf


class GuessConfig(vf.TasksetConfig):
    numbers: int = 200
    most: int = 8
    guesses: int = 1
    """Most guesses of a solution: 1 knows the number, more are drawn among the numbers that the hints leave."""


class GuessData(vf.TaskData):
    answer: int
    turns: list[str]


class GuessTask(vf.Task[GuessData]):
    pass


class GuessEnvConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class GuessEnv(vf.Env[GuessEnvConfig]):
    async def run(self, task: GuessTask, agents) -> None:
        found = False
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated and not found:
                said = re.search(r"\d+", segment.last_reply)
                found = said is not None and int(said[0]) == task.data.answer
                if found:
                    break
                hint = "no number" if said is None else "higher" if int(said[0]) < task.data.answer else "lower"
                segment = await interaction.turn(f"{hint} ({random.choice(['go on', 'try again'])})")
        interaction.trace.record_reward("found", float(found))


class GuessTaskset(vf.Taskset[GuessTask, GuessConfig]):
    def load(self):
        drawn = random.Random(7)
        for number in range(self.config.numbers):
            answer = drawn.randint(1, self.config.most)
            yield GuessTask(
                GuessData(
                    prompt=f"Round {number}: guess my number from 1 to {self.config.most}.",
                    answer=answer,
                    turns=[str(guess) for guess in self._solution(answer, number)],
                ),
                self.config.task,
            )

    def _solution(self, answer: int, number: int) -> list[int]:
        """Return the first game of a player on this number that ends in time."""
        drawn, said = random.Random(f"player {number}"), [answer] * (self.config.guesses == 1)
        while not said or len(said) > self.config.guesses:
            said = guesses(drawn, answer, self.config.most)
        return said


def guesses(drawn: random.Random, answer: int, most: int) -> list[int]:
    """Return guesses down to the answer, each drawn among the numbers that the hints before it leave."""
    low, high, said = 1, most, [drawn.randint(1, most)]
    while said[-1] != answer:
        low, high = (said[-1] + 1, high) if said[-1] < answer else (low, said[-1] - 1)
        said.append(drawn.randint(low, high))
    return said


__all__ = ["GuessEnv", "GuessTaskset"]
