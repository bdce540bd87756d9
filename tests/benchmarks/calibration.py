"""Rates of this machine, from a short run that was played on it: the plan's formulas with measured figures. Pure."""

from dataclasses import dataclass, replace

from tasks.core.capacity.hardware import Hardware
from tasks.core.capacity.plan import Plan


@dataclass(frozen=True)
class MeasuredRun:
    """Seconds of a finished run, means over its stages."""

    collecting_s: float
    """Playing one iteration's rollouts."""
    updating_s: float
    stage_s: float
    """A stage beside its work."""
    start_s: float
    """Seconds of the run beyond its stages' work and `stage_s` of each."""


def calibrated(hardware: Hardware, planned: Plan, seen: MeasuredRun) -> Hardware:
    """`hardware` with the rates at which `planned`, the plan of the run that was `seen`, would have taken as long.

    Sampling, reading and the engine's steps are scaled by one factor.
    """
    slower = seen.collecting_s / planned.collecting.total
    return replace(
        hardware,
        learner_share=hardware.learner_share * planned.updating_s / seen.updating_s,
        prefill_share=hardware.prefill_share / slower,
        decode_share=hardware.decode_share / slower,
        step_s=hardware.step_s * slower,
        stage_s=seen.stage_s,
        start_s=seen.start_s,
    )
