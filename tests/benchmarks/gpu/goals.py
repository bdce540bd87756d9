"""What the GPU check asks for, and its report: a verdict for each goal, as a table and as results/gpu/report.json.

Imports the standard library only.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

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


_ORPHANS = ("0", number("orphans"), at_most(0), True)


def _goals() -> Iterator[tuple[Any, ...]]:
    """Yield what each part is asked for: name, goal, reader, limit, and whether a CPU can be judged by it."""
    part = "gradients"
    float32, bfloat16, of_cpu = ((dtype, "difference") for dtype in ("float32", "bfloat16", "cpu_bfloat16"))
    yield part, "gradient in float32: distance from a CPU's", "<= 1e-4", number(*float32), at_most(1e-4), True
    yield part, "gradient in bfloat16: noise over a CPU's", "<= 1.25", ratio(bfloat16, of_cpu), at_most(1.25), True
    clipped = number("bfloat16", "first_step_clipped")
    yield part, "importance weights clipped before the first step", "0", clipped, at_most(0), True
    for passes, what in (("learner", "learner's passes"), ("engine", "engine in this process")):
        name = f"{what} against the eager model, bfloat16"
        yield "architecture", name, "all proven", all_of(passes), at_least(1), True
    packed, eager = (("attention", way, "error") for way in ("packed", "eager"))
    name = "packed attention in bfloat16: error over the eager one's"
    yield "kernels", name, "<= 1", ratio(packed, eager), at_most(1), True
    chunked = number("head", "chunked", "max_error")
    yield "kernels", "chunked head: largest error of a log-prob", "<= 1e-3", chunked, at_most(1e-3), True
    for tokens, (shape, title) in product(_TOKENS, _SHAPES.items()):
        name = f"learner's useful MFU, {title}, packs of {tokens // 1024}K"
        yield "mfu", name, f">= {LEARNER_MFU:.2f}", mfu(shape, tokens), at_least(LEARNER_MFU)
    for shape, title in _SHAPES.items():
        name, within = f"planned memory, {title}, all rows", close_to_one(PLANNED_WITHIN)
        yield "mfu", name, "within 10%", planned_memory(shape), within
    for of, where in (("a dropped policy", ("dropped", "left_gib")), ("any stage", ("most_left_gib",))):
        left, name = (
            number(*where, form="{:.3f}"),
            f"device memory left {'of' if 'policy' in of else 'after'} {of}, GiB",
        )
        yield "memory", name, f"<= {LEFT_GIB}", left, at_most(LEFT_GIB), True
    yield "memory", "memory: processes left behind", *_ORPHANS
    for count in (64, 256):
        rate = number("conversations", str(count), "tokens_per_s", form="{:,} tokens/s")
        yield "engine", f"engine in this process, {count} conversations", "no goal", rate
    yield "training", "curve of `default` beside a CPU's", "within 3 standard errors", curve_distance, at_most(3)
    share, part = number("vs_offline", "engine_at_once"), "vllm"
    name = "decoding through the engine over vLLM's offline run"
    yield part, name, f">= {VLLM_SHARE}", share, at_least(VLLM_SHARE)
    rate = number("tokens_per_s", "engine_at_once", form="{:,} tokens/s")
    yield part, "decoding through the engine", "no goal", rate
    delivered = number("delivered_s")
    yield (
        part,
        "adapter delivered and proven, s",
        f"< {DELIVERED_S:g}",
        delivered,
        lambda seconds: seconds < DELIVERED_S,
    )
    name, mismatch = (
        "mean difference of log-probs, engine and learner",
        number("engine_mismatch", "mean", form="{:.2g}"),
    )
    yield part, name, f"<= {BFLOAT16_MISMATCH}", mismatch, at_most(BFLOAT16_MISMATCH), True
    held = number("asleep", "held_gib", form="{:.3f}")
    yield part, "device memory held while the engine sleeps, GiB", f"<= {LEFT_GIB}", held, at_most(LEFT_GIB)
    yield part, "waking after an update on the same device, s", "no goal", number("asleep", "wake_s")
    yield part, "vllm: processes left behind", *_ORPHANS
    name = "turns that others in the batch move, batch-invariant mode"
    yield "invariance", name, "0 of 8", number("moved", form="{:g} of 8"), at_most(0)
    yield "invariance", "invariance: processes left behind", *_ORPHANS
    name = "Test-N gain of smollm2 through vLLM, 8 iterations"
    yield "smollm2", name, "> 0", gain, lambda low: low > 0
    yield "smollm2", "smollm2: processes left behind", *_ORPHANS


GOALS = tuple(Goal(*row) for row in _goals())

Verdict = Literal["pass", "fail", "seen", "not run", "failed"]
IN_LITTLE = "in little on a CPU"


class Line(NamedTuple):
    """A goal and what became of it."""

    part: str
    name: str
    goal: str
    figure: str | None
    verdict: Verdict
    """pass or fail; seen: there is no goal; not run: nothing was measured; failed: the part ended in an error."""
    reason: str
    device: str | None


def judge(goal: Goal, figures: Figures | None) -> Line:
    """Compare the part's figures with the goal; None: the part never ran here."""
    if figures is None:
        return Line(*goal[:3], None, "not run", "never ran", None)
    device, needs_a_gpu = figures.get("device"), figures.get("cuda") is None and not goal.anywhere
    try:
        value, text = goal.read(figures)
    except Unmeasured as reason:
        verdict: Verdict = "failed" if "failed" in figures else "not run"
        why = IN_LITTLE if needs_a_gpu and verdict == "not run" else str(reason)
        return Line(*goal[:3], None, verdict, why, device)
    if needs_a_gpu:
        return Line(*goal[:3], text, "not run", IN_LITTLE, device)
    if goal.holds is None:
        return Line(*goal[:3], text, "seen", "", device)
    return Line(*goal[:3], text, "pass" if goal.holds(value) else "fail", "", device)


def lines_of(folder: Path) -> list[Line]:
    """Return a line for each goal, from the parts' files in `folder`."""
    figures = {goal.part: read_part(folder, goal.part) for goal in GOALS}
    return [judge(goal, figures[goal.part]) for goal in GOALS]


def read_part(folder: Path, part: str) -> Figures | None:
    """Return the figures of a part; None where there are none."""
    file = folder / f"{part}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def table(lines: Sequence[Line]) -> str:
    """Return the lines side by side, with a count of the verdicts at the end."""
    rows = [("line", "goal", "figure", "verdict", "device, or why")]
    rows += [
        (line.name, line.goal, line.figure or "-", line.verdict, _short(line.reason or line.device or ""))
        for line in lines
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    text = ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]) for row in rows]
    verdicts = [line.verdict for line in lines]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
    return "\n".join([*text, counts])


def _short(reason: str) -> str:
    """Return the last line, where a traceback says what happened."""
    return (reason.strip().splitlines() or [""])[-1][:100]
