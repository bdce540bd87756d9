"""Stage warm_start: supervised training of the base model on demonstrations of the world -> data/warm_start/.

It is a stage of its own, so that no knob of LoRA or of the update trains the model again. Most runs have no warm start:
then it writes its record only.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tasks.core.config.params import ParamsError
from tasks.core.config.policy import WarmStart
from tasks.core.config.stage_inputs import WarmStartInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world import Demonstrating, World
from tasks.core.interfaces.world_kind import find_world, open_world
from tasks.core.policies.base_model import fetch_base_model
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.chat_settings import load_chat_format, write_chat_settings
from tasks.core.policies.checkpoint_files import MODEL_CARD, write_digests
from tasks.core.policies.loading import load_base_model, load_tokenizer
from tasks.core.policies.policy_weights import require_finite
from tasks.core.policies.recipe import examples_of, two_phases
from tasks.core.policies.supervised import Example, SupervisedSettings, train
from tasks.core.records.documents import write_document
from tasks.core.records.files import replacing
from tasks.core.records.layout import Layout
from tasks.core.records.training import WarmStartRecord
from tasks.core.rollouts.recited import recited_examples
from tasks.core.seeding import derive_seed

SEED = 0
"""Not the run's: runs with other seeds begin at the same base model, as they would at one that is downloaded."""
TOKENS_PER_STEP, WARMUP_STEPS = 2048, 4
"""Batching of a training of some dozens of steps. Its length and learning rate are knobs."""


def warm_start(context: StageContext[WarmStartInputs]) -> None:
    """Train all weights of the model that `policy.source` names as `policy.warm_start` says, and write the new base.

    Weights and optimizer are float32; with `policy.dtype: bfloat16`, matrix products and the written weights are
    bfloat16. Raises ParamsError for a world that has neither scripted play nor solutions, and what `fetch_base_model`
    raises.
    """
    inputs, layout = context.inputs, context.layout
    with replacing(layout.warm_start) as folder:
        folder.mkdir()
        losses: list[float] = []
        if inputs.warm_start is not None:
            with _recited_world(inputs, inputs.warm_start, layout) as world:
                losses = _train(inputs, inputs.warm_start, world, layout.root, folder / layout.warm_started_base.name)
        write_document(folder / layout.warm_start_record.name, WarmStartRecord(losses=tuple(losses)))


@contextmanager
def _recited_world(inputs: WarmStartInputs, settings: WarmStart, layout: Layout) -> Iterator[World | None]:
    """Give the world whose solutions are recited, or None for one with scripted play. Raises ParamsError."""
    if inputs.played is None:
        yield None
        return
    with closing(open_world(inputs.played, layout.world)) as world:
        if not isinstance(world, Demonstrating):
            raise ParamsError(
                f"policy.warm_start: {inputs.world} shows nothing to train on: neither scripted play (`demonstrations` "
                "in its kind.py) nor solutions (`Demonstrating`); set it to null"
            )
        if settings.imperfect_steps:
            raise ParamsError(
                f"policy.warm_start: {inputs.world} recites its solutions, and they have no flaws; set "
                "imperfect_demonstrations and imperfect_steps to 0"
            )
        yield world


def _train(inputs: WarmStartInputs, settings: WarmStart, world: World | None, root: Path, folder: Path) -> list[float]:
    """Train the model; return the loss of every step, in nats per policy token."""
    with TemporaryDirectory(prefix="pretrained-", dir=folder.parent) as pretrained:
        fetch_base_model(inputs.base, inputs.world, root, Path(pretrained))
        write_chat_settings(Path(pretrained), inputs.chat, inputs.world_date)
        model, chat = load_base_model(Path(pretrained), inputs.base), load_chat_format(Path(pretrained))
        require_finite(dict(model.named_parameters()), Path(inputs.source))
        tokenizer = load_tokenizer(Path(pretrained))
        card = Path(pretrained) / MODEL_CARD
        origin = card.read_text(encoding="utf-8") if card.exists() else f"# {inputs.source}\n"
    model.requires_grad_(True)
    seed, half = derive_seed(SEED, "warm start"), inputs.dtype == "bfloat16"
    supervised = SupervisedSettings(
        tokens_per_step=TOKENS_PER_STEP,
        tokens_per_forward=settings.tokens_per_forward,
        warmup_steps=WARMUP_STEPS,
        bfloat16_products=half,
    )
    perfect, imperfect, described = _lessons(inputs, settings, world, chat, seed)
    losses = train(model, two_phases(perfect, imperfect, settings), supervised, seed)
    (model.bfloat16() if half else model).save_pretrained(folder)  # type: ignore[operator]
    tokenizer.save_pretrained(folder)
    write_chat_settings(folder, inputs.chat, inputs.world_date)
    text = f"{origin}\nThen all weights were trained on {described} of {inputs.world}.\n"
    (folder / MODEL_CARD).write_text(text, encoding="utf-8")
    write_digests(folder)
    return losses


def _lessons(
    inputs: WarmStartInputs, settings: WarmStart, world: World | None, chat: ChatFormat, seed: int
) -> tuple[list[Example], list[Example], str]:
    """Play what the model is to learn: the world's scripted play, or its solutions. Raises ParamsError.

    Returns perfect and imperfect episodes, and what they are, for the model's card.
    """
    good, bad = settings.perfect_demonstrations, settings.imperfect_demonstrations
    if world is None:
        play = find_world(inputs.world).demonstrations
        assert play is not None, "a world without scripted play is recited"
        perfect = examples_of(chat, play(seed, good, imperfect=False))
        imperfect = examples_of(chat, play(seed, bad, imperfect=True))
        return perfect, imperfect, f"{good} perfect and {bad} imperfect demonstrations"
    assert inputs.limits is not None, "they are given with the world"
    try:
        recited = recited_examples(world, chat, inputs.limits, good, seed)
    except ValueError as error:
        raise ParamsError(f"policy.warm_start: {inputs.world}: {error}") from error
    return recited, [], f"{len(recited)} recited solutions"
