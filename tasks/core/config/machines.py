"""The `machines` section of params.yaml: where work is done, if not in the pipeline's own process. Changes no byte."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tasks.core.config.section import Section


class RayConfig(Section):
    """Machines that play the shards of collection, evaluation and scoring (`collection.shards`).

    All run the project's code. One that doesn't see the project's folder at the same path is sent what a shard needs.
    """

    renamed: ClassVar = {"cache_gib": "machines.cache_gib"}

    address: str | None = None
    """Address of the Ray cluster. null: no Ray. auto: the cluster that this machine belongs to. HOST:PORT or
    ray://HOST:PORT: another one. local: a cluster of this machine alone, for as long as the run."""
    cpus_per_worker: float = Field(1, gt=0)
    """CPUs that a shard takes."""
    gpus_per_worker: float = Field(0, ge=0)
    """GPUs that a shard takes."""
    wait_s: float = Field(1800, ge=0)
    """Seconds without room for any worker. After them a stage fails."""


class MachinesConfig(Section):
    """Machines that do the work."""

    ray: RayConfig = RayConfig()
    """Machines that play the shards of rollouts."""
    processes: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Processes of this machine that play shards. Never more than `collection.shards`, and each loads the policy. auto:
    one for each core, and one where they would share a GPU. `ray.address` takes their place."""
    cache_gib: float = Field(100, gt=0)
    """GiB kept by a machine that was sent files, for rollouts or for an update. They are in
    ~/.cache/loopline/received."""
