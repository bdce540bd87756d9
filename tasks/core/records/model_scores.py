"""The document of `loopline score`: one model on one split."""

from typing import Literal

from pydantic import Field

from tasks.core.records.api_usage import ApiUsage
from tasks.core.records.comparison import SplitScores
from tasks.core.records.documents import Count, Digest, Document, Share
from tasks.core.records.scores import EpisodeLimits

ModelKind = Literal["model", "adapter", "weights", "version", "api"]
"""A model with its tokenizer, an adapter on one, whole weights beside one, a registered version of either, a server."""


class ScoreLineage(Document):
    """The things that a score was made from, by their digests."""

    code: str = Field(pattern=r"^[0-9a-f]{16}$")
    """First digits of a SHA-256 over the files of code that played: the version of the stage `score`."""
    params: Digest
    """Digest of all parameters, which lie beside this document as params.yaml."""
    world: Digest
    """Digest of the folder with the world's tasks."""
    base: Digest
    """Digest of the base model's folder; for a server, of the one whose tokenizer records the turns."""
    weights: Digest | None
    """Digest of the checkpoint that was played; None for a server, whose weights nobody here has seen."""
    git_commit: str
    git_dirty: bool | None
    """None: git did not say."""
    loopline: str
    """Version of the package."""


class ModelScore(Document):
    """score.json: one model on one split of a world."""

    key: Digest
    """Digest of the model, the split, the parameters and the code: equal keys mean the same score."""
    model: str
    """As it was named on the command line."""
    name: str
    """The short name in tables; of the folder too."""
    kind: ModelKind
    world: str
    split: str
    """As the world or its package calls it."""
    seeds: tuple[int, ...]
    """One per evaluation run, the same for all models; a split of the package's that is several of ours has each's."""
    temperature: float
    limits: EpisodeLimits
    scores: SplitScores
    mean_return: Share
    void_rollouts: Count
    """Rollouts that the world broke; they count as failures."""
    usage: ApiUsage | None
    """Set for a model that is paid for."""
    world_usage: ApiUsage | None = None
    """Set for a world that pays for part of its play, as for a simulated user."""
    lineage: ScoreLineage
