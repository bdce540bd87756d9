"""Train an embedded base policy anew:

python -m tasks.core.policies.train_base_policy FOLDER [--world NAME] [--set SETTING=VALUE]
"""

import argparse
from pathlib import Path

import torch

from tasks.core.config.world import WORLDS, WorldSection
from tasks.core.config.yaml_text import parse_yaml
from tasks.core.interfaces.world_kind import find_world
from tasks.core.policies.recipe import Recipe, save


def main() -> None:
    """Parse the arguments, train the policy, save it."""
    parser = argparse.ArgumentParser(description="Train the embedded policy of a world.")
    parser.add_argument("folder", type=Path, help="where model and tokenizer go")
    parser.add_argument("--world", choices=WORLDS.names(), default=WorldSection.default_name)
    parser.add_argument("--set", action="append", default=[], help="a setting of its recipe, such as seed=1")
    arguments = parser.parse_args()
    named = find_world(arguments.world).recipe
    recipe = named and named.load()
    if not isinstance(recipe, Recipe):
        parser.error(f"{arguments.world} has no recipe")
    changes = {name: parse_yaml(value) for name, _, value in (text.partition("=") for text in arguments.set)}
    torch.set_num_threads(1)
    save(*type(recipe).model_validate({**recipe.model_dump(), **changes}).make(), arguments.folder)


if __name__ == "__main__":
    main()
