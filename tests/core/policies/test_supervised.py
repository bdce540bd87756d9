from random import Random

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import GraniteConfig, GraniteForCausalLM, Qwen2ForCausalLM

from tasks.core.interfaces.world import Message
from tasks.core.policies.architecture import TinyQwen2, build_tokenizer, new_model
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.supervised import (
    Example,
    Phase,
    SupervisedSettings,
    _step,
    _summed_loss,
    encode_example,
    in_random_order,
    padded,
    step_batch,
    train,
)
from tasks.core.processes.resources import CORES_VARIABLE

SIZES = TinyQwen2(width=32, heads=1, feed_forward=32, context_length=64)


def make_model(seed: int = 0) -> Qwen2ForCausalLM:
    return new_model(SIZES, vocabulary=24, eos_token_id=1, pad_token_id=0, seed=seed)


def copying_examples(count: int, seed: int) -> list[Example]:
    """Make examples `5 a b c d e 6 a b c d e`: the text after the 6 must be copied from the text after the 5."""
    random = Random(seed)
    words = [random.choices(range(8, 24), k=random.randint(3, 5)) for _ in range(count)]
    return [Example((5, *w, 6, *w), (False,) * (len(w) + 2) + (True,) * len(w)) for w in words]


def test_an_episode_is_the_agent_loops_own_token_stream() -> None:
    tokenizer = build_tokenizer(["pay", "paid", "do", "done"], 64)
    opening: list[Message] = [{"role": "user", "content": "do"}]
    example = encode_example(ChatFormat(tokenizer), opening, [("pay", "paid"), ("done", "unseen")])
    assert tokenizer.decode(example.token_ids) == (
        "<|im_start|>user\ndo<|im_end|>\n<|im_start|>assistant\npay<|im_end|>\n"
        "<|im_start|>user\npaid<|im_end|>\n<|im_start|>assistant\ndone<|im_end|>"
    )
    learnt = [token for token, own in zip(example.token_ids, example.policy_mask, strict=True) if own]
    assert tokenizer.decode(learnt) == "pay<|im_end|>done<|im_end|>"


def test_batches_show_every_example_equally_often() -> None:
    examples = [Example((index,) * 3, (True,) * 3) for index in range(10)]
    stream = in_random_order(examples)(Random(0))
    seen = [example.token_ids[0] for _ in range(10) for example in step_batch(stream, 6)]
    assert sorted(seen) == sorted([*range(10)] * 2)
    assert sorted(seen[:10]) == [*range(10)]


def test_no_examples_is_an_error() -> None:
    with pytest.raises(ValueError, match="no examples"):
        in_random_order([])


def test_padded_targets_are_the_next_policy_tokens() -> None:
    short, long = Example((1, 2, 3), (False, True, True)), Example((4, 5, 6, 7), (False, False, True, False))
    ((ids, targets),) = padded([long, short], 8)
    assert ids.tolist() == [[1, 2, 3, 0], [4, 5, 6, 7]]
    assert targets.tolist() == [[2, 3, -100, -100], [-100, 6, -100, -100]]
    assert [part[0].shape for part in padded([long, short], 7)] == [(1, 3), (1, 4)]


def test_one_step_follows_the_mean_cross_entropy_of_the_policy_tokens() -> None:
    batch = copying_examples(4, seed=1)
    ours, plain = make_model(), make_model()
    settings = SupervisedSettings(tokens_per_forward=20, max_grad_norm=1e9)
    loss = _step(ours, torch.optim.SGD(ours.parameters()), batch, 0.1, settings)

    terms = []
    for example in batch:
        ids = torch.tensor([example.token_ids])
        logits = plain(input_ids=ids).logits[0, :-1]
        terms.append(cross_entropy(logits, ids[0, 1:], reduction="none")[torch.tensor(example.policy_mask[1:])])
    expected = torch.cat(terms).mean()
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    for (name, moved), still in zip(ours.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(moved, still - 0.1 * still.grad, rtol=1e-4, atol=1e-6, msg=name)


def test_training_learns_to_copy_and_repeats_itself_exactly() -> None:
    torch.set_num_threads(1)
    phases = [Phase("copy", in_random_order(copying_examples(512, seed=2)), steps=150, learning_rate=4e-3)]
    settings = SupervisedSettings(tokens_per_step=512)
    first, second = make_model(), make_model()
    losses = train(first, phases, settings, seed=0)
    assert sum(losses[-10:]) / 10 < 0.7 < losses[0]

    short = [Phase("copy", phases[0].examples, steps=3, learning_rate=4e-3)]
    train(second, short, settings, seed=0)
    third = make_model()
    train(third, short, settings, seed=0)
    for left, right in zip(second.parameters(), third.parameters(), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16 products"])
def test_the_number_of_cores_changes_no_bit(half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    examples = copying_examples(64, seed=2)
    phases = [Phase("copy", in_random_order(examples), steps=3, learning_rate=4e-3)]
    settings = SupervisedSettings(tokens_per_step=128, tokens_per_forward=32, bfloat16_products=half)
    assert len(list(padded(examples[:12], settings.tokens_per_forward))) > 3  # more than 3 passes in a step
    found = []
    for cores in ("1", "3"):
        monkeypatch.setenv(CORES_VARIABLE, cores)
        model = make_model()
        losses = train(model, phases, settings, seed=0)
        found.append([losses, *(weight.tolist() for weight in model.parameters())])
    assert found[0] == found[1]


def test_the_loss_is_the_models_own_where_its_head_scales_logits() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = GraniteForCausalLM(GraniteConfig(vocab_size=31, num_key_value_heads=2, logits_scaling=8.0, **sizes)).eval()
    model.lm_head.weight.data.normal_()
    ids = torch.randint(3, 31, (2, 9))
    targets = torch.cat([ids[:, 1:], torch.full((2, 1), -100)], dim=1)
    with torch.no_grad():
        assert float(_summed_loss(model, ids, targets)) == pytest.approx(
            float(model(ids, labels=ids).loss) * 16, rel=1e-5
        )
