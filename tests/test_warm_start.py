"""The stage warm_start: scripted play on the embedded policy, and recited solutions of worlds without one."""

import math
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from shutil import copy

import pytest
import torch
from safetensors.torch import load_file

from flows.params_file import params_of
from tasks.core.config.collection import AgentLimits
from tasks.core.config.params import Params, ParamsError
from tasks.core.config.stage_inputs import BasePolicyInputs, WarmStartInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.interfaces.world_kind import open_world, prepare_world_folder
from tasks.core.policies.architecture import TinyQwen2, build_tokenizer, new_model
from tasks.core.policies.chat_settings import load_chat_format
from tasks.core.policies.loading import load_base_model, load_tokenizer
from tasks.core.policies.recipe import save
from tasks.core.policies.supervised import Example
from tasks.core.records.documents import read_document
from tasks.core.records.files import digest
from tasks.core.records.layout import Layout
from tasks.core.records.training import WarmStartRecord
from tasks.core.rollouts.recited import recited_examples
from tasks.prepare_policy import prepare_policy
from tasks.warm_start import warm_start

POCKET = Path(__file__).parents[1] / "data/base_policies/pocket"
COURSE = "{perfect_demonstrations: 3, perfect_steps: 2, imperfect_demonstrations: 3, imperfect_steps: 1}"
SETTINGS = [f"policy.source={POCKET}", f"policy.warm_start={COURSE}", "policy.device=cpu"]


def run(root: Path, *settings: str) -> Layout:
    params = params_of("smoke", [*SETTINGS, *settings])
    warm_start(StageContext(Layout(root), WarmStartInputs.of(params)))
    return Layout(root)


def test_all_weights_of_the_base_are_trained_and_the_policy_begins_there(tmp_path: Path) -> None:
    layout = run(tmp_path)
    assert len(read_document(layout.warm_start_record, WarmStartRecord).losses) == 3
    before, after = (load_file(folder / "model.safetensors") for folder in (POCKET, layout.warm_started_base))
    assert before.keys() == after.keys()
    assert not any(before[name].equal(after[name]) for name in before)
    card = (layout.warm_started_base / "README.md").read_text()
    assert "trained on 3 perfect and 3 imperfect demonstrations of pocketworld" in card
    prepare_policy(StageContext(layout, BasePolicyInputs.of(params_of("smoke", SETTINGS))))
    assert digest(layout.base_policy) == digest(layout.warm_started_base)


def test_the_runs_seed_does_not_change_the_bytes(tmp_path: Path) -> None:
    settings = {"a": (), "b": (), "c": ("seed=1",), "d": ("policy.warm_start.learning_rate=1e-3",)}
    found = [digest(run(tmp_path / name, *own).warm_start) for name, own in settings.items()]
    assert found[0] == found[1] == found[2] != found[3]


def test_bfloat16_is_written_as_such(tmp_path: Path) -> None:
    weights = load_file(run(tmp_path, "policy.dtype=bfloat16").warm_started_base / "model.safetensors")
    assert {str(tensor.dtype) for tensor in weights.values()} == {"torch.bfloat16"}


def test_without_a_warm_start_there_is_a_record_only(tmp_path: Path) -> None:
    layout = run(tmp_path, "policy.warm_start=null")
    assert [path.name for path in layout.warm_start.iterdir()] == ["warm_start.json"]
    assert read_document(layout.warm_start_record, WarmStartRecord).losses == ()


RECITED = ("learning_rate: 8e-3", "perfect_steps: 30", "imperfect_demonstrations: 0", "imperfect_steps: 0")
COUNTS = "{train: 90, dev: 18, test_normal: 3, test_challenge: 3}"


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packaged worlds without scripted play, found by entry points as pip leaves them."""
    about = tmp_path / "site" / "faces-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: faces\nVersion: 1.0\n")
    faces = "".join(f"{name.lower()} = key_value_faces:{name}\n" for name in ("DELETIONS", "MUTE"))
    (about / "entry_points.txt").write_text(f"[loopline.worlds]\n{faces}")
    copy(Path(__file__).with_name("key_value_faces.py"), about.parent)
    monkeypatch.syspath_prepend(str(about.parent))
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "key_value_world"))


def recited_params(world: str, source: Path, *course: str, seed: int = 0) -> Params:
    settings = ("perfect_demonstrations: 90", *(course or RECITED))
    return params_of(
        "smoke",
        [
            f"world.name={world}",
            f"world.seed={seed}",
            f"world.{world}.counts={COUNTS}",
            f"policy.source={source}",
            f"policy.warm_start={{{', '.join(settings)}}}",
            "policy.device=cpu",
        ],
    )


def untrained_policy(folder: Path) -> Path:
    """A tiny model that has seen nothing, with a token for each word and phrase of key_value."""
    from loopline_key_value.world import COLOURS, RULES

    told = [f". See to it that {colour} is gone" for colour in COLOURS]
    pieces = [RULES, "In the store ", *told, " is", "done", *(f"delete {colour}" for colour in COLOURS)]
    tokenizer = build_tokenizer(pieces, 256)
    sizes = TinyQwen2(width=64, heads=1, feed_forward=64, context_length=256)
    save(new_model(sizes, len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id, 0), tokenizer, folder)
    return folder


def nats_per_episode(policy: Path, params: Params, recited: Sequence[Example]) -> float:
    """How improbable the policy's own tokens of recited episodes are to it."""
    model, total = load_base_model(policy, params.policy).eval(), 0.0
    for example in recited:
        ids, own = torch.tensor([example.token_ids]), torch.tensor(example.policy_mask[1:], dtype=torch.bool)
        with torch.no_grad():
            log_probs = model(ids).logits[0, :-1].log_softmax(-1)
        total -= log_probs.gather(1, ids[0, 1:, None])[own].sum().item()
    return total / len(recited)


@pytest.mark.usefixtures("packaged")
def test_a_world_that_recites_teaches_its_solutions(tmp_path: Path) -> None:
    """Of tasks that it has not seen, too: all but which of eight keys is meant, at least, which takes log 8 nats."""
    source, layout = untrained_policy(tmp_path / "untrained"), Layout(tmp_path)
    params, others = recited_params("deletions", source), recited_params("deletions", source, seed=7)
    prepare_world_folder(params.world, layout.world)
    prepare_world_folder(others.world, tmp_path / "others")
    warm_start(StageContext(layout, WarmStartInputs.of(params)))
    with closing(open_world(others.world, tmp_path / "others")) as world:
        unseen = recited_examples(world, load_chat_format(source), params.collection.limits, 30, seed=0)
    assert nats_per_episode(source, params, unseen) > 4 * math.log(256)  # four tokens of a turn and its end, twice
    assert nats_per_episode(layout.warm_started_base, params, unseen) < math.log(8) + 0.25
    assert len(read_document(layout.warm_start_record, WarmStartRecord).losses) == 30
    card = (layout.warm_started_base / "README.md").read_text()
    assert "trained on 90 recited solutions of deletions" in card


@pytest.mark.usefixtures("packaged")
def test_recited_tokens_are_those_that_the_world_is_played_with(tmp_path: Path) -> None:
    source, layout = untrained_policy(tmp_path / "untrained"), Layout(tmp_path)
    params = recited_params("deletions", source)
    prepare_world_folder(params.world, layout.world)
    chat = load_chat_format(source)
    with closing(open_world(params.world, layout.world)) as world:
        (example,) = recited_examples(world, chat, params.collection.limits, 1, seed=0)
        with pytest.raises(ValueError, match=r"no recited solution of 1 training tasks .* collection\.limits"):
            recited_examples(world, chat, AgentLimits(max_turns=1), 1, seed=0)
    spoken = load_tokenizer(source).decode(list(example.token_ids))
    own = [token for token, policys in zip(example.token_ids, example.policy_mask, strict=True) if policys]
    first, second, rest = load_tokenizer(source).decode(own).split("<|im_end|>")
    key = first.removeprefix("delete ")
    assert (first, second, rest) == (f"delete {key}", "done", "")
    assert (
        spoken.startswith("<|im_start|>system\nYou keep a store.")
        and f"See to it that {key} is gone.<|im_end|>" in spoken
    )
    assert spoken.endswith(f"user\n{key} is gone.<|im_end|>\n<|im_start|>assistant\ndone<|im_end|>")


@pytest.mark.usefixtures("packaged")
@pytest.mark.parametrize(
    ("world", "course", "said"),
    [
        ("mute", RECITED, r"mute shows nothing to train on: neither scripted play .* nor solutions"),
        ("deletions", ("perfect_steps: 1",), r"deletions recites its solutions, and they have no flaws; set imperfect"),
    ],
)
def test_a_world_without_demonstrations_is_refused(
    tmp_path: Path, world: str, course: tuple[str, ...], said: str
) -> None:
    layout, params = Layout(tmp_path), recited_params(world, POCKET, *course)
    prepare_world_folder(params.world, layout.world)
    with pytest.raises(ParamsError, match=rf"policy\.warm_start: {said}"):
        warm_start(StageContext(layout, WarmStartInputs.of(params)))
    assert not layout.warm_start.exists()


def test_steps_without_demonstrations_are_refused() -> None:
    with pytest.raises(ParamsError, match="one without the other does nothing"):
        params_of("smoke", ["policy.warm_start={imperfect_steps: 0}"])


@pytest.mark.parametrize(
    ("settings", "recites"),
    [
        (["policy.warm_start=null"], False),
        (["policy.warm_start={perfect_steps: 2}"], False),
        (["policy.warm_start=null", "world.name=appworld"], False),
        (["policy.warm_start={perfect_steps: 2}", "world.name=appworld"], True),
    ],
)
def test_the_world_and_its_knobs_are_read_only_where_it_recites(settings: list[str], recites: bool) -> None:
    params = params_of("smoke", settings)
    assert (params.dag.recited_world == "data/world") is recites
    other = params_of("smoke", [*settings, "world.seed=7", "collection.limits.max_observation_tokens=9"])
    before, after = (WarmStartInputs.of(each).knobs() for each in (params, other))
    changed = {name for name in after if before[name] != after[name]}
    assert changed == ({"world.seed", "collection.limits.max_observation_tokens"} if recites else set())
