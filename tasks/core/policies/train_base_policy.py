"""Train an embedded base policy anew:

python -m tasks.core.policies.train_base_policy FOLDER [--world NAME]
"""

import argparse
from pathlib import Path

import torch

from tasks.core.policies.appworld_recipe import APPWORLD_RECIPE, make_appworld_policy
from tasks.core.policies.recipe import (
    APPWORLD,
    GAME_RECIPES,
    POCKETWORLD,
    Recipe,
    make_game_policy,
    make_policy,
    save,
    teacher_of,
)


def main() -> None:
    """Parse the arguments, train the policy, save it."""
    parser = argparse.ArgumentParser(description="Train the embedded policy.")
    parser.add_argument("folder", type=Path, help="where model and tokenizer go")
    parser.add_argument("--world", choices=[POCKETWORLD, APPWORLD, *GAME_RECIPES], default=POCKETWORLD)
    parser.add_argument("--seed", type=int, default=Recipe().seed)
    parser.add_argument("--chained-share", type=float, default=0.0, help="pocketworld's tasks of two requests")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.world == POCKETWORLD:
        policy = make_policy(Recipe(seed=arguments.seed, chained_share=arguments.chained_share))
    elif arguments.world == APPWORLD:
        policy = make_appworld_policy(APPWORLD_RECIPE.model_copy(update={"seed": arguments.seed}))
    else:
        recipe = GAME_RECIPES[arguments.world].model_copy(update={"seed": arguments.seed})
        policy = make_game_policy(recipe, teacher_of(arguments.world))
    save(*policy, arguments.folder)


if __name__ == "__main__":
    main()
