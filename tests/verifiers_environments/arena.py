"""Games of the package `textarena` that need no word lists, played by the Env that verifiers brings for its others."""

import itertools
import random

import textarena
import verifiers.v1 as vf
from verifiers.v1.tasksets.textarena import TextArenaData, TextArenaEnv, TextArenaTask
from verifiers.v1.tasksets.textarena.taskset import SYSTEM_PROMPT


class ArenaConfig(vf.TasksetConfig):
    game: str


class ArenaTaskset(vf.Taskset[TextArenaTask, ArenaConfig]):
    INFINITE = True

    def load(self):
        for seed in itertools.count():
            random.seed(seed)
            game = textarena.make(env_id=self.config.game)
            game.reset(num_players=1)
            yield TextArenaTask(
                TextArenaData(
                    name=f"{self.config.game}#{seed}",
                    prompt=str(game.get_observation()[1]),
                    system_prompt=SYSTEM_PROMPT,
                    info={"game": self.config.game, "seed": seed},
                ),
                self.config.task,
            )


__all__ = ["ArenaTaskset", "TextArenaEnv"]
