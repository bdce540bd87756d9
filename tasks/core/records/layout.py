"""Paths of all artifacts of a run, relative to the project's root. No other module spells them out."""

from dataclasses import dataclass
from pathlib import Path


def holds_clocks(path: str) -> bool:
    """Return whether the artifact at `path` differs between equal runs: it says how fast a stage was, and no more."""
    return path.endswith("timings.json")


@dataclass(frozen=True)
class Layout:
    """Paths in one working tree. `iteration` is a key such as "i003"; "i000" is the policy before training."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def params(self) -> Path:
        """The parameters, as people edit them."""
        return self.root / "params.yaml"

    @property
    def stage_versions(self) -> Path:
        """Digests of each stage's code and parameters, which dvc.yaml lists as its parameters."""
        return self.data / "stage_versions.json"

    @property
    def manifest(self) -> Path:
        """The parameters and code files behind those digests."""
        return self.data / "manifest.json"

    def attestation(self, stage: str, key: str) -> Path:
        """Return the path of `stage`'s statement about its outputs; `key` is "" for a stage that runs once."""
        return self.data / "attestations" / stage / f"{key or 'once'}.json"

    @property
    def world(self) -> Path:
        """Output of prepare_world: a folder in the world's own format."""
        return self.data / "world"

    @property
    def warm_start(self) -> Path:
        """Output of warm_start: its record, and the model if it trained one."""
        return self.data / "warm_start"

    @property
    def warm_start_record(self) -> Path:
        return self.warm_start / "warm_start.json"

    @property
    def warm_started_base(self) -> Path:
        return self.warm_start / "base"

    @property
    def base_policy(self) -> Path:
        """Base model, tokenizer and chat template, in the format of `AutoModelForCausalLM` and `AutoTokenizer`."""
        return self.data / "policy"

    @property
    def preflight(self) -> Path:
        """The longest update known to fit into memory."""
        return self.data / "preflight.json"

    @property
    def preflight_project(self) -> Path:
        """The root of the temporary project in which preflight tries an update."""
        return self.data / ".preflight"

    @property
    def tasks(self) -> Path:
        """The training tasks after filtering, with sampling weights."""
        return self.data / "tasks" / "train.parquet"

    def iteration(self, key: str) -> Path:
        return self.data / "iterations" / key

    def rollouts(self, key: str) -> Path:
        return self.iteration(key) / "rollouts.parquet"

    def timings(self, key: str) -> Path:
        """Return the path of collection's wall-clock figures."""
        return self.iteration(key) / "timings.json"

    def training_batch(self, key: str) -> Path:
        return self.iteration(key) / "training_batch.parquet"

    def advantage_summary(self, key: str) -> Path:
        return self.iteration(key) / "advantages.json"

    def policy(self, key: str) -> Path:
        """Return the checkpoint folder after iteration `key`: adapter (peft format) or full weights, optimizer, RNG."""
        return self.iteration(key) / "policy"

    def metrics(self, key: str) -> Path:
        return self.iteration(key) / "metrics.json"

    def update_timings(self, key: str) -> Path:
        """Return the path of the update's wall-clock figures."""
        return self.iteration(key) / "update_timings.json"

    @property
    def evaluations(self) -> Path:
        """All dev evaluations: a separate folder, because a DVC dependency can be a folder but not a list."""
        return self.data / "evaluations"

    def evaluation(self, key: str) -> Path:
        """Return the path of the dev scores of the policy after iteration `key`."""
        return self.evaluations / f"{key}.json"

    def evaluation_rollouts(self, key: str) -> Path:
        return self.evaluations / f"{key}_rollouts.parquet"

    @property
    def selection(self) -> Path:
        return self.data / "selection.json"

    def score(self, split: str) -> Path:
        return self.data / "scores" / f"{split}.json"

    def score_rollouts(self, split: str) -> Path:
        return self.data / "scores" / f"{split}_rollouts.parquet"

    def training_budget_rollouts(self, split: str) -> Path:
        """Return the path of the rollouts played again at the training budget; an empty table if there are none."""
        return self.data / "scores" / f"{split}_training_budget_rollouts.parquet"

    @property
    def learning_curves(self) -> Path:
        """Learning curves with one row per iteration, for `dvc plots`."""
        return self.data / "learning_curves.csv"

    @property
    def report(self) -> Path:
        return self.data / "report"

    def summary(self, split: str) -> Path:
        """Return the file with the few figures of a split that `dvc metrics show` lists."""
        return self.data / "summary" / f"{split}.json"

    @property
    def lineage(self) -> Path:
        """Digests of everything that this run was made from, as reported to MLflow."""
        return self.data / "lineage.json"

    @property
    def traces(self) -> Path:
        """Addresses of the rollouts' traces, which the report loads if the file exists; not an output of any stage."""
        return self.data / "traces.js"

    @property
    def comparisons(self) -> Path:
        """Comparisons of model versions, written by `loopline registry`; no stage reads them."""
        return self.data / "comparisons"
