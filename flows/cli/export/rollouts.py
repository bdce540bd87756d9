"""`loopline export rollouts`: recorded rollouts as a dataset that `datasets` and TRL read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.cli.command import command, refusing
from flows.signals import exit_on_sigterm

if TYPE_CHECKING:
    from tasks.core.exports.rollout_dataset import ExportedRollouts


@command("export rollouts", "Serve")
def export_rollouts(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="A split (dev, test_normal, test_challenge) or an iteration (i003).")
    ],
    folder: Annotated[Path, typer.Argument(resolve_path=True, help="A new folder.")],
    policy: Annotated[Literal["selected", "base"], typer.Option(help="Whose rollouts, of a split.")] = "selected",
) -> int:
    """Write recorded rollouts as a dataset: messages, returns, verdicts, tokens and log-probs.

    The folder is read by `datasets.load_dataset` and by TRL's SFT trainer. A second config, `preferences`, has the best
    and the worst rollout of each task for its DPO trainer. Exit code 1: an input is missing or damaged; 2: there is no
    such split or iteration, or the folder holds something.

    \b
    loopline export rollouts i003 rollouts_i003
    loopline export rollouts test_normal scored --policy base
    """
    from tasks.core.exports.messages import Conversations
    from tasks.core.exports.model_folder import require_new
    from tasks.core.exports.rollout_dataset import export_rollouts as write
    from tasks.core.exports.rollout_sources import UnknownRollouts, rollouts_of
    from tasks.core.policies.chat_settings import load_chat_format
    from tasks.core.records.files import ArtifactError
    from tasks.core.records.layout import Layout

    exit_on_sigterm()
    with refusing(ArtifactError):
        require_new(folder)
    layout = Layout(Path.cwd())
    with refusing(UnknownRollouts):
        source = rollouts_of(layout, what, policy)
    print(report_line(folder, write(source, Conversations(load_chat_format(layout.base_policy)), folder)))
    return 0


def report_line(folder: Path, counts: ExportedRollouts) -> str:
    """Return where the dataset is, and how much it holds."""
    void = f", without {counts.void} that have no verdict" if counts.void else ""
    return f"{folder}: {counts.rollouts} rollouts{void}, {counts.preferences} preferences"
