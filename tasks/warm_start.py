"""Stage warm_start: supervised training of the base model on demonstrations of the world -> data/warm_start/.

It is a stage of its own, so that no knob of LoRA or of the update trains the model again. Most runs have no warm start:
then it writes its record only.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from tasks.core.config.params import ParamsError
from tasks.core.config.policy import WarmStart
from tasks.core.config.stage_inputs import WarmStartInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.policies.base_model import fetch_base_model
from tasks.core.policies.chat_settings import write_chat_settings
from tasks.core.policies.digests import MODEL_CARD, write_digests
from tasks.core.policies.loading import load_base_model, load_chat_format, load_tokenizer
from tasks.core.policies.recipe import GAME_RECIPES, POCKETWORLD, warm_start_phases
from tasks.core.policies.supervised import SupervisedSettings, train
from tasks.core.records.documents import write_document
from tasks.core.records.files import replacing
from tasks.core.records.training import WarmStartRecord
from tasks.core.seeding import derive_seed


def warm_start(context: StageContext[WarmStartInputs]) -> None:
    """Train all weights of the model that `policy.source` names as `policy.warm_start` says, and write the new base.

    Weights and optimizer are float32; with `policy.dtype: bfloat16`, matrix products and the written weights are
    bfloat16. Raises ParamsError for a world without demonstrations, and what `fetch_base_model` raises.
    """
    inputs, layout = context.inputs, context.layout
    with replacing(layout.warm_start) as folder:
        folder.mkdir()
        losses: list[float] = []
        if inputs.warm_start is not None:
            losses = _train(inputs, inputs.warm_start, layout.root, folder / layout.warm_started_base.name)
        write_document(folder / layout.warm_start_record.name, WarmStartRecord(losses=tuple(losses)))


def _train(inputs: WarmStartInputs, settings: WarmStart, root: Path, folder: Path) -> list[float]:
    """Train the model; return the loss of every step, in nats per policy token."""
    if inputs.world not in (POCKETWORLD, *GAME_RECIPES):
        known = ", ".join((POCKETWORLD, *GAME_RECIPES))
        raise ParamsError(
            f"policy.warm_start: {inputs.world} has no demonstrations; worlds with demonstrations: {known}"
        )
    with TemporaryDirectory(prefix="pretrained-", dir=folder.parent) as pretrained:
        fetch_base_model(inputs.base, root, Path(pretrained))
        write_chat_settings(Path(pretrained), inputs.chat, inputs.world)
        model, chat = load_base_model(Path(pretrained), inputs.base), load_chat_format(Path(pretrained))
        tokenizer = load_tokenizer(Path(pretrained))
        card = Path(pretrained) / MODEL_CARD
        origin = card.read_text(encoding="utf-8") if card.exists() else f"# {inputs.source}\n"
    model.requires_grad_(True)
    seed, half = derive_seed(settings.seed, "warm start"), inputs.dtype == "bfloat16"
    supervised = SupervisedSettings(
        tokens_per_step=settings.tokens_per_step,
        tokens_per_forward=settings.tokens_per_forward,
        warmup_steps=settings.warmup_steps,
        bfloat16_products=half,
    )
    losses = train(model, warm_start_phases(chat, inputs.world, settings, seed), supervised, seed)
    (model.bfloat16() if half else model).save_pretrained(folder)  # type: ignore[operator]
    tokenizer.save_pretrained(folder)
    write_chat_settings(folder, inputs.chat, inputs.world)
    taught = f"{settings.perfect_demonstrations} perfect and {settings.imperfect_demonstrations} imperfect"
    text = f"{origin}\nThen all weights were trained on {taught} demonstrations of {inputs.world}.\n"
    (folder / MODEL_CARD).write_text(text, encoding="utf-8")
    write_digests(folder)
    return losses
