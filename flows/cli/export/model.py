"""`loopline export model`: a trained policy as one folder that transformers and vLLM load, with its proof."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.command import command, refusing
from flows.signals import exit_on_sigterm

if TYPE_CHECKING:
    from tasks.core.exports.logits_proof import LogitsProof

EXPORTS = Path("exports")
"""Where a model goes that was given no folder; ignored by git."""


@command("export model", "Serve")
def export_model(
    folder: Annotated[
        Path | None, typer.Argument(resolve_path=True, help="A new folder; by default one in exports/.")
    ] = None,
    version: Annotated[
        str | None, typer.Option(help="A registered version or alias, in place of the policy selected in this run.")
    ] = None,
    adapter: Annotated[bool, typer.Option("--adapter", help="The adapter alone, without the base's weights.")] = False,
) -> int:
    """Write a trained policy as a model of its own, and prove that it is the policy.

    The folder has the weights with the adapter merged in, the tokenizer, the chat template and a card in the hub's
    form. A fresh process loads it by transformers alone; its logits on recorded conversations must equal base and
    adapter within the rounding of policy.dtype, and differ from the base model by more. Otherwise nothing is written.
    Exit code 1: an input is missing or does not fit, or the proof failed; 2: there is no such version, or the folder
    holds something.

    \b
    loopline export model
    loopline export model trained --version champion
    loopline export model trained --adapter
    """
    from tasks.core.exports.model_folder import export_model as write
    from tasks.core.exports.model_folder import require_new
    from tasks.core.exports.policy_sources import registered_policy, selected_policy
    from tasks.core.records.files import ArtifactError
    from tasks.core.records.layout import Layout
    from tasks.core.registry.model_registry import UnknownVersion

    exit_on_sigterm()
    if folder is not None:
        with refusing(ArtifactError):
            require_new(folder)
    root = Path.cwd()
    source = selected_policy(Layout(root)) if version is None else registered_policy(Layout(root), version)
    with refusing(UnknownVersion), source as (policy, conversations):
        target = folder or root / EXPORTS / f"{policy.name}-{version or policy.iteration}"
        print("\n".join(report_lines(target, write(policy, target, conversations, adapter=adapter))))
    return 0


def report_lines(folder: Path, proof: LogitsProof) -> list[str]:
    """Return where the model is, what was proven, and the command that would share it."""
    ours, base = proof.from_policy, proof.from_base
    return [
        f"{folder}: loaded by transformers alone, {proof.positions} positions of {proof.conversations} conversations",
        f"  logits from base and adapter: {ours.rms:.3g} root mean square, {ours.largest:.3g} at most "
        f"(rounding in {proof.dtype}: up to {proof.limit:.3g})",
        f"  logits from the base model:   {base.rms:.3g} root mean square, {base.largest:.3g} at most",
        f"To share it: hf upload NAMESPACE/{folder.name} {folder}",
    ]
