"""What the GPU check asks for: one goal for each line of its report. Imports the standard library only."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Figures = Mapping[str, Any]
LEARNER_MFU, VLLM_SHARE, DELIVERED_S, PLANNED_WITHIN = 0.40, 0.9, 2.0, 0.10
LEFT_GIB = 0.1
"""What may stay on a device: cuBLAS keeps workspaces of some tens of MiB."""
BFLOAT16_MISMATCH = 0.1
"""Mean |engine - learner| that rounding explains (tasks/core/learner/proofs.py)."""
_SHAPES = {"32b": "32B", "7b": "7B", "1.5b": "1.5B"}
_TOKENS = (8192, 16_384, 32_768)


class Unmeasured(Exception):  # noqa: N818 - the finding
    """A figure that is not there; the message says why."""


class Figure(NamedTuple):
    """What was measured, to compare with the goal and to print."""

    value: float
    text: str


class Goal(NamedTuple):
    """A line of the report."""

    part: str
    name: str
    goal: str
    read: Callable[[Figures], Figure]
    holds: Callable[[float], bool] | None = None
    """None: no goal was set, and the line shows what was seen."""
    anywhere: bool = False
    """Whether it can be judged in little on a CPU, too."""


def at(figures: Figures, *names: str) -> Any:
    """Return the value below `names`. Raises Unmeasured with the reason that the figures give on the way to it."""
    value: Any = figures
    for name in names:
        if not isinstance(value, Mapping) or name not in value:
            raise Unmeasured(_reason(value) or _reason(figures) or f"no {name}")
        value = value[name]
    return value


def _reason(value: Any) -> str:
    found = value if isinstance(value, Mapping) else {}
    return str(found.get("failed") or found.get("skipped") or ("out of memory" if "out_of_memory" in found else ""))


def number(*names: str, form: str = "{:g}") -> Callable[[Figures], Figure]:
    """Return a reader of one number."""

    def read(figures: Figures) -> Figure:
        value = at(figures, *names)
        return Figure(float(value), form.format(value))

    return read


def ratio(over: tuple[str, ...], under: tuple[str, ...]) -> Callable[[Figures], Figure]:
    """Return a reader of the quotient of two numbers."""

    def read(figures: Figures) -> Figure:
        value = float(at(figures, *over)) / float(at(figures, *under))
        return Figure(value, f"{value:.2f}")

    return read


def _rows(figures: Figures, shape: str, tokens: int | None = None) -> list[Figures]:
    rows = [row for row in figures.get("rows", ()) if row["model"] == shape and tokens in (None, row["tokens"])]
    if not rows:
        raise Unmeasured(_reason(figures) or "no such row")
    return rows


def mfu(shape: str, tokens: int) -> Callable[[Figures], Figure]:
    """Return a reader of the better MFU of the rows with and without activation checkpointing."""

    def read(figures: Figures) -> Figure:
        rows = _rows(figures, shape, tokens)
        measured = [row for row in rows if "mfu" in row]
        if not measured:
            raise Unmeasured(_reason(rows[-1]) or "no MFU")
        if not isinstance(measured[0]["mfu"], float):
            raise Unmeasured(f"{measured[0]['mfu']}; {measured[0]['tokens_per_s']:,} tokens/s")
        best = max(measured, key=lambda row: row["mfu"])
        return Figure(best["mfu"], f"{best['mfu']:.3f} ({best['tokens_per_s']:,} tokens/s)")

    return read


def planned_memory(shape: str) -> Callable[[Figures], Figure]:
    """Return a reader of the planned over the measured peak that is furthest from 1.

    A row counts where the device is known to have been empty before it.
    """

    def read(figures: Figures) -> Figure:
        rows = [row for row in _rows(figures, shape) if "peak_memory_gib" in row]
        clean = [row for row in rows if row.get("held_before_gib", LEFT_GIB + 1) <= LEFT_GIB]
        if not clean:
            raise Unmeasured(figures.get("note", "") if rows else _reason(figures) or "no peak")
        ratios = [row["planned_gib"] / row["peak_memory_gib"] for row in clean]
        worst = max(ratios, key=lambda one: abs(one - 1))
        return Figure(worst, f"{worst:.2f} of the peak ({len(clean)} rows)")

    return read


def all_of(name: str) -> Callable[[Figures], Figure]:
    """Return a reader of the share of {case: verdict} that is true."""

    def read(figures: Figures) -> Figure:
        cases = at(figures, name)
        wrong = [f"{case}: {verdict}" for case, verdict in cases.items() if verdict is not True]
        return Figure(1 - len(wrong) / len(cases), "; ".join([f"{len(cases) - len(wrong)} of {len(cases)}", *wrong]))

    return read


def curve_distance(figures: Figures) -> Figure:
    """Return the largest distance of the training curve from the CPU's, in standard errors."""
    value = max(map(abs, at(figures, "standard_errors_from_cpu")))
    return Figure(value, f"{value:g} standard errors")


def gain(figures: Figures) -> Figure:
    """Return the lower end of the interval of the gain on Test-N. Raises Unmeasured where there is none."""
    ends = at(figures, "tgc_gain_interval", "test_normal")
    seeds = len(at(figures, "runs"))
    if ends is None:
        raise Unmeasured(
            "one seed finished: no interval" if seeds == 1 else f"the gains of {seeds} seeds have no spread"
        )
    mean = at(figures, "mean", "test_normal_tgc_gain")
    return Figure(ends[0], f"{mean:+.1f} points ({ends[0]} to {ends[1]}, {seeds} seeds)")


def at_least(limit: float) -> Callable[[float], bool]:
    return lambda value: value >= limit


def at_most(limit: float) -> Callable[[float], bool]:
    return lambda value: value <= limit


def close_to_one(share: float) -> Callable[[float], bool]:
    return lambda value: abs(value - 1) <= share


def _no_orphans(part: str) -> Goal:
    return Goal(part, f"{part}: processes left behind", "0", number("orphans"), at_most(0), anywhere=True)


GOALS: tuple[Goal, ...] = (
    Goal(
        "gradients",
        "gradient in float32: distance from a CPU's",
        "<= 1e-4",
        number("float32", "difference"),
        at_most(1e-4),
        anywhere=True,
    ),
    Goal(
        "gradients",
        "gradient in bfloat16: noise over a CPU's",
        "<= 1.25",
        ratio(("bfloat16", "difference"), ("cpu_bfloat16", "difference")),
        at_most(1.25),
        anywhere=True,
    ),
    Goal(
        "gradients",
        "importance weights clipped before the first step",
        "0",
        number("bfloat16", "first_step_clipped"),
        at_most(0),
        anywhere=True,
    ),
    Goal(
        "architecture",
        "learner's passes against the eager model, bfloat16",
        "all proven",
        all_of("learner"),
        at_least(1),
        anywhere=True,
    ),
    Goal(
        "architecture",
        "engine in this process against the eager model, bfloat16",
        "all proven",
        all_of("engine"),
        at_least(1),
        anywhere=True,
    ),
    Goal(
        "kernels",
        "packed attention in bfloat16: error over the eager one's",
        "<= 1",
        ratio(("attention", "packed", "error"), ("attention", "eager", "error")),
        at_most(1),
        anywhere=True,
    ),
    Goal(
        "kernels",
        "chunked head: largest error of a log-prob",
        "<= 1e-3",
        number("head", "chunked", "max_error"),
        at_most(1e-3),
        anywhere=True,
    ),
    *(
        Goal(
            "mfu",
            f"learner's useful MFU, {title}, packs of {tokens // 1024}K",
            f">= {LEARNER_MFU:.2f}",
            mfu(shape, tokens),
            at_least(LEARNER_MFU),
        )
        for tokens in _TOKENS
        for shape, title in _SHAPES.items()
    ),
    *(
        Goal(
            "mfu",
            f"planned memory, {title}, all rows",
            "within 10%",
            planned_memory(shape),
            close_to_one(PLANNED_WITHIN),
        )
        for shape, title in _SHAPES.items()
    ),
    Goal(
        "memory",
        "device memory left of a dropped policy, GiB",
        f"<= {LEFT_GIB}",
        number("dropped", "left_gib", form="{:.3f}"),
        at_most(LEFT_GIB),
        anywhere=True,
    ),
    Goal(
        "memory",
        "device memory left after any stage, GiB",
        f"<= {LEFT_GIB}",
        number("most_left_gib", form="{:.3f}"),
        at_most(LEFT_GIB),
        anywhere=True,
    ),
    _no_orphans("memory"),
    *(
        Goal(
            "engine",
            f"engine in this process, {count} conversations",
            "no goal",
            number("conversations", str(count), "tokens_per_s", form="{:,} tokens/s"),
        )
        for count in (64, 256)
    ),
    Goal("training", "curve of `default` beside a CPU's", "within 3 standard errors", curve_distance, at_most(3)),
    Goal(
        "vllm",
        "decoding through the engine over vLLM's offline run",
        f">= {VLLM_SHARE}",
        number("vs_offline", "engine_at_once"),
        at_least(VLLM_SHARE),
    ),
    Goal(
        "vllm",
        "decoding through the engine",
        "no goal",
        number("tokens_per_s", "engine_at_once", form="{:,} tokens/s"),
    ),
    Goal(
        "vllm",
        "adapter delivered and proven, s",
        f"< {DELIVERED_S:g}",
        number("delivered_s"),
        lambda seconds: seconds < DELIVERED_S,
    ),
    Goal(
        "vllm",
        "mean difference of log-probs, engine and learner",
        f"<= {BFLOAT16_MISMATCH}",
        number("engine_mismatch", "mean", form="{:.2g}"),
        at_most(BFLOAT16_MISMATCH),
        anywhere=True,
    ),
    Goal(
        "vllm",
        "device memory held while the engine sleeps, GiB",
        f"<= {LEFT_GIB}",
        number("asleep", "held_gib", form="{:.3f}"),
        at_most(LEFT_GIB),
    ),
    Goal(
        "vllm",
        "waking after an update on the same device, s",
        "no goal",
        number("asleep", "wake_s"),
    ),
    _no_orphans("vllm"),
    Goal(
        "invariance",
        "turns that others in the batch move, batch-invariant mode",
        "0 of 8",
        number("moved", form="{:g} of 8"),
        at_most(0),
    ),
    _no_orphans("invariance"),
    Goal("smollm2", "Test-N gain of smollm2 through vLLM, 8 iterations", "> 0", gain, lambda low: low > 0),
    _no_orphans("smollm2"),
)
