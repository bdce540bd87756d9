"""The embedded policy of τ²-bench: demonstrations on tasks that no test holds, in the package's own environment."""

from typing import TYPE_CHECKING

from tqdm import tqdm

from tasks.core.interpreters import INTERPRETERS, python_executable
from tasks.core.policies.recipe import Recipe, train_policy
from tasks.core.policies.supervised import SupervisedSettings
from tasks.core.worlds.tau2.demonstrations.playing import play_demonstrations
from tasks.core.worlds.tau2.demonstrations.vocabulary import pieces
from tasks.core.worlds.tau2.kind import TAU2, Tau2Config
from tasks.core.worlds.tau2.pool import Tau2Pool
from tasks.core.worlds.tau2.tasks import parted
from tasks.core.worlds.tau2.world import Tau2World

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

WORLD_SEED = 2502
"""The seed of the profile's world, whose dev and test_challenge are held back from the demonstrations."""


class Tau2Recipe(Recipe):
    """The settings of its policy."""

    def make(self) -> tuple["Qwen2ForCausalLM", "Qwen2Tokenizer"]:
        """Play demonstrations, train. Raises InterpreterUnavailable and WorldFault."""
        config = Tau2Config(train="full", prompt="ticket")
        pool = Tau2Pool(python_executable(INTERPRETERS, TAU2))
        world = Tau2World(parted(*pool.tasks(), config.train, WORLD_SEED), pool, config)
        try:
            perfect, imperfect = (
                [
                    played.messages
                    for played in tqdm(
                        play_demonstrations(world, self.seed, count, imperfect=bad), total=count, unit="episode"
                    )
                    if played.success or not (bad and self.successes_alone)
                ]
                for bad, count in ((False, self.perfect_demonstrations), (True, self.imperfect_demonstrations))
            )
        finally:
            world.close()
        return train_policy(self, pieces([*perfect, *imperfect]), perfect, imperfect)


RECIPE = Tau2Recipe(
    supervised=SupervisedSettings(tokens_per_step=2048, tokens_per_forward=1024),
    perfect_demonstrations=1_200,
    imperfect_demonstrations=1_200,
    perfect_steps=200,
    imperfect_steps=150,
    learning_rate=3e-3,
)
