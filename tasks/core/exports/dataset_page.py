"""The README.md of exported rollouts, in the form of the hub's dataset cards: it tells `datasets` which files are what.

Pure.
"""

from collections.abc import Mapping

from huggingface_hub import DatasetCardData

_COLUMNS = {
    "messages": "the conversation, by roles; thoughts stay in the turns as they were sampled",
    "return, success": "the world's score in [0, 1], and whether every test passed",
    "tests_passed, tests_failed": "the tests by name: the verdict",
    "end_reason": "how the episode ended",
    "turns": "of each turn: whether its code failed, and the names of the API calls that it made",
    "token_ids": "exactly what the engine saw and sampled",
    "policy_mask, turn_index": "which tokens the policy sampled, and in which turn",
    "sequence_begins": "where each sequence begins: [0], or more where a turn did not see all that came before it",
    "logprobs": "log-probabilities of the sampled tokens, at the sampling temperature; 0 elsewhere",
}


def dataset_page(name: str, split: str, world: str, model: str, counts: Mapping[str, int]) -> str:
    """Return the card. `counts` has the numbers of rollouts, preferences and void rollouts."""
    kinds = ["rollouts", *(["preferences"] if counts["preferences"] else [])]
    metadata = DatasetCardData(
        pretty_name=f"{model}: {name}",
        task_categories=["text-generation", "reinforcement-learning"],
        tags=["loopline", "agent", "trajectories", world],
        configs=[_config(kind, split) for kind in kinds],
    )
    return "\n".join([f"---\n{metadata.to_yaml()}\n---", *_lines(name, split, world, model, counts), ""])


def _config(kind: str, split: str) -> dict[str, object]:
    files = [{"split": split, "path": f"{kind}/{split}.parquet"}]
    return {"config_name": kind, "data_files": files, **({"default": True} if kind == "rollouts" else {})}


def _lines(name: str, split: str, world: str, model: str, counts: Mapping[str, int]) -> list[str]:
    void = f"; {counts['void']} that have no verdict are left out" if counts["void"] else ""
    return [
        f"# {model}: {name}",
        "",
        f"{counts['rollouts']} rollouts in the world `{world}`, recorded by loopline{void}.",
        "",
        "```python",
        "from datasets import load_dataset",
        "",
        f'rollouts = load_dataset("FOLDER", split="{split}")',
        *([f'pairs = load_dataset("FOLDER", "preferences", split="{split}")'] if counts["preferences"] else []),
        "```",
        "",
        "| column | |",
        "|---|---|",
        *(f"| {column} | {meaning} |" for column, meaning in _COLUMNS.items()),
        "",
        *_preferences(counts["preferences"]),
        "The names of API calls stand in `turns`, not as `tool_calls` of a message: the policy wrote its calls as "
        "text, and a chat template would show them twice.",
    ]


def _preferences(pairs: int) -> list[str]:
    if not pairs:
        return ["No task has rollouts of different returns, so that there are no preferences.", ""]
    return [
        f"`preferences` has {pairs} pairs, the best and the worst rollout of a task. `chosen` and `rejected` hold the "
        "world's observations too, which a trainer that masks nothing trains on.",
        "",
    ]
