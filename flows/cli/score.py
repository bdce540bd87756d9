"""`loopline score`: any model on any world's split (flows/scoring)."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.command import AsJson, Settings, command, refusing


def _placed(words: list[str]) -> list[str]:
    """Return whole paths for folders of the current one: commands work in the checkout."""
    return [str(Path(word).resolve()) if Path(word).is_dir() else word for word in words]


def _placed_base(word: str | None) -> str | None:
    return None if word is None else _placed([word])[0]


@command("score", "Run")
def score(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            callback=_placed,
            help="A folder, a hub id, an adapter's folder, models:/NAME/3, models:/NAME@champion, or URL MODEL-NAME.",
        ),
    ],
    *,
    world: Annotated[str | None, typer.Option(help="As world.name; by default that of params.yaml.")] = None,
    split: Annotated[str, typer.Option(help="dev, test_normal, ... or a name of the world's package.")] = "test_normal",
    runs: Annotated[int | None, typer.Option(min=1, help="Rollouts of each task; by default as params.yaml.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Play so many scenarios, spread over the split.")] = None,
    base: Annotated[
        str | None, typer.Option(callback=_placed_base, help="Base model of an adapter that names none.")
    ] = None,
    into: Annotated[
        Path, typer.Option(resolve_path=True, help="Folder of results; by default data/scored.", show_default=False)
    ] = Path("data/scored"),
    as_json: AsJson = False,
    settings: Settings,
) -> int:
    """Score models without training.

    Engines, limits, verdicts and statistics are the stages' own; a server is asked as the profile openai says. Killed,
    the same command goes on, and answers that were paid for are kept. Several models are compared, paired by task. The
    table is printed; documents, rollouts and a log for Inspect lie in the folder of results, and MLflow has a run.
    Exit code 1: a model or its server failed; 2: there is no such model, world, split or knob.

    \b
    loopline score data/base_policies/pocket_narrow data/iterations/i024/policy
    loopline score http://localhost:8000/v1 my-model --world tau2 --split test --runs 4
    """
    from flows.profile_stack import UnknownProfile
    from flows.scoring.asked_models import Asked, asked_models, world_of
    from flows.scoring.score_models import scored
    from tasks.core.config.kinds import UnknownKind
    from tasks.core.config.params import ParamsError
    from tasks.core.interfaces.world_kind import find_world
    from tasks.core.scored_models.comparing import comparison_page

    root, wanted = Path.cwd(), asked_models(models)
    with refusing(ParamsError, UnknownProfile, UnknownKind):
        named = world_of(root, world)
        kind = find_world(named)
    try:
        kind.splits(split)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--split") from None
    with refusing(ParamsError, UnknownProfile):
        counts = {name: n for name, n in (("rollouts_per_task", runs), ("scenarios", limit)) if n is not None}
        found, recorded = scored(wanted, Asked(root, named, split, counts, base, tuple(settings)), into)
    print(found.model_dump_json(indent=2) if as_json else f"{comparison_page(found)}\n\nwritten to {into}")
    return 0 if recorded else 1
