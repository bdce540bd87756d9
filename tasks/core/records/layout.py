"""Places of all artifacts of a run, relative to the project's root. The only module that spells these paths."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layout:
    """Paths of one working tree. `iteration` is a key such as "i003"; "i000" is the policy before training."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def params(self) -> Path:
        """The knobs, as people edit them."""
        return self.root / "params.yaml"

    @property
    def stage_versions(self) -> Path:
        """Digests of the code and of the parameters of each stage, which are its parameters in dvc.yaml."""
        return self.data / "stage_versions.json"

    @property
    def manifest(self) -> Path:
        """The parameters and the files of code behind those digests."""
        return self.data / "manifest.json"

    def attestation(self, stage: str, key: str) -> Path:
        """Return the place of what `stage` states about its outputs; `key` is "" for a stage that runs once."""
        return self.data / "attestations" / stage / f"{key or 'once'}.json"

    @property
    def world(self) -> Path:
        """Output of prepare_world: a folder whose content belongs to the world in use."""
        return self.data / "world"

    @property
    def warm_start(self) -> Path:
        """Output of the stage of that name: its record, and the model that it trained if it did."""
        return self.data / "warm_start"

    @property
    def warm_start_record(self) -> Path:
        return self.warm_start / "warm_start.json"

    @property
    def warm_started_base(self) -> Path:
        return self.warm_start / "base"

    @property
    def base_policy(self) -> Path:
        """Base model, tokenizer and chat template, as `AutoModelForCausalLM` and `AutoTokenizer` read them."""
        return self.data / "policy"

    @property
    def preflight(self) -> Path:
        """The longest update that was seen to fit into memory."""
        return self.data / "preflight.json"

    @property
    def preflight_project(self) -> Path:
        """The root of the project in which preflight tries an update, for as long as it does."""
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
        """Wall-clock figures of collection: the one output of that stage that differs between equal runs."""
        return self.iteration(key) / "timings.json"

    def training_batch(self, key: str) -> Path:
        return self.iteration(key) / "training_batch.parquet"

    def advantage_summary(self, key: str) -> Path:
        return self.iteration(key) / "advantages.json"

    def policy(self, key: str) -> Path:
        """Checkpoint folder after iteration `key`: adapter (peft format) or full weights, optimizer, RNG."""
        return self.iteration(key) / "policy"

    def metrics(self, key: str) -> Path:
        return self.iteration(key) / "metrics.json"

    @property
    def courses(self) -> Path:
        """Courses of the iterations: a folder of their own, written whole by one stage if the monitor does nothing."""
        return self.data / "courses"

    def course(self, key: str) -> Path:
        """The course after iteration `key`: what is done about signs of a collapse."""
        return self.courses / f"{key}.json"

    @property
    def evaluations(self) -> Path:
        """All dev evaluations: a folder of their own, because DVC can name a folder as a dependency but no list."""
        return self.data / "evaluations"

    def evaluation(self, key: str) -> Path:
        """Dev scores of the policy after iteration `key`."""
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
        """Those played again at the training budget; without a row where none were."""
        return self.data / "scores" / f"{split}_training_budget_rollouts.parquet"

    @property
    def learning_curves(self) -> Path:
        """One row per iteration, for `dvc plots`."""
        return self.data / "learning_curves.csv"

    @property
    def report(self) -> Path:
        return self.data / "report"

    def summary(self, split: str) -> Path:
        """The few figures of a split that `dvc metrics show` lists."""
        return self.data / "summary" / f"{split}.json"

    @property
    def lineage(self) -> Path:
        """Digests of all that this run was made from, as MLflow was told."""
        return self.data / "lineage.json"

    @property
    def traces(self) -> Path:
        """Addresses of the rollouts' traces, which the report's page loads where it is there; no stage's output."""
        return self.data / "traces.js"

    @property
    def comparisons(self) -> Path:
        """Comparisons of model versions, by `python -m flows.registry`; no stage reads them."""
        return self.data / "comparisons"
