"""Rollouts that a stage had played before it was stopped, so that its next attempt plays only the others.

A play is kept in parts, each of which ends before the next begins. A play that was stopped ends with the bytes of one
that was not.
"""

import hashlib
import json
import pickle
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.core.config.stage_inputs import PlayInputs
from tasks.core.interfaces.stage import StageContext
from tasks.core.policies.checkpoint_files import policy_digest
from tasks.core.records.files import fingerprint, replacing
from tasks.core.rollouts.planning import PlannedRollout, PlaySettings
from tasks.core.rollouts.shards import PlayedRollouts, joined, play_in_shards

PLAYED = Path(".loopline") / "played"
_EPISODES_EACH = 8
"""Rollouts of a part for each episode that may be open at once. With fewer, more of them wait for a part's longest."""


@dataclass(frozen=True)
class KeptParts:
    """The parts of one play, in a folder of their own."""

    folder: Path
    key: str
    """Digest of all that the rollouts follow from."""

    def begin(self) -> None:
        """Remove what another play has left in the folder."""
        named = self.folder / "key"
        if not named.exists() or named.read_text(encoding="utf-8") != self.key:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            named.write_text(self.key, encoding="utf-8")

    def read(self, number: int) -> PlayedRollouts | None:
        """Return part `number` if it was played whole."""
        try:
            content = self._path(number).read_bytes()
        except FileNotFoundError:
            return None
        played: PlayedRollouts = pickle.loads(content)
        return played

    def keep(self, number: int, played: PlayedRollouts) -> None:
        """Write part `number`, whole or not at all."""
        with replacing(self._path(number)) as temporary:
            temporary.write_bytes(pickle.dumps(played))

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:04}.pickle"


def play_in_parts(
    context: StageContext[PlayInputs],
    planned: Sequence[PlannedRollout],
    settings: PlaySettings,
    *,
    policy: Path,
    split: str,
    name: str,
) -> PlayedRollouts:
    """`play_in_shards` for settings without early stop, going on where an earlier attempt at this stage was stopped.

    `name` is that of the play within its split. A stage whose version nobody recorded keeps nothing, as other code may
    go on.
    """
    kept = _kept_parts(context, settings, policy, split, name) if context.version else None
    if kept is not None:
        kept.begin()
    played = []
    for number, part in enumerate(_parts(planned, settings)):
        found = kept.read(number) if kept is not None else None
        if found is None:
            found = play_in_shards(context, part, settings, policy=policy, description=f"{split}, {name}")
            if kept is not None:
                kept.keep(number, found)
        else:
            print(f"{split}, {name}: {len(part)} of {len(planned)} rollouts are kept from an attempt that was stopped")
        played.append(found)
    return joined(played)


def forget_played(root: Path, split: str, *names: str) -> None:
    """Remove what is kept of these plays of a split (none: of all), because the result is written."""
    for folder in (_folder(root, split, name) for name in names) if names else [root / PLAYED / split]:
        shutil.rmtree(folder, ignore_errors=True)


def _parts(planned: Sequence[PlannedRollout], settings: PlaySettings) -> list[Sequence[PlannedRollout]]:
    size = _EPISODES_EACH * settings.max_concurrent_episodes
    return [planned[first : first + size] for first in range(0, len(planned), size)]


def _kept_parts(
    context: StageContext[PlayInputs], settings: PlaySettings, policy: Path, split: str, name: str
) -> KeptParts:
    layout, size = context.layout, str(settings.max_concurrent_episodes)  # of a part; no version tells it
    follows_from = [
        context.version,
        size,
        policy_digest(policy),
        fingerprint(layout.world),
        fingerprint(layout.base_policy),
    ]
    key = hashlib.sha256(json.dumps([split, name, *follows_from]).encode()).hexdigest()
    return KeptParts(_folder(layout.root, split, name), key)


def _folder(root: Path, split: str, name: str) -> Path:
    return root / PLAYED / split / "".join(letter if letter.isalnum() else "_" for letter in name)
