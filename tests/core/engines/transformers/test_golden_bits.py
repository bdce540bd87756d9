"""One play of the engine has the recorded bits."""

import hashlib
import json
from pathlib import Path

from tests.golden_bits import require_portable_bits, require_recorded_bits

from .test_same_bits import NAMES, engine_of, play


def test_the_embedded_policys_play_has_the_recorded_bits() -> None:
    played = play(engine_of("pocket"), NAMES, 5)
    told = {
        name: [(turn.token_ids, [logprob.hex() for logprob in turn.logprobs]) for turn in turns]
        for name, turns in played.items()
    }
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
    require_recorded_bits(Path(__file__).parent / "golden_bits.json", digest)


def test_a_play_has_the_bits_that_processors_share() -> None:
    require_portable_bits(f"{__file__}::test_the_embedded_policys_play_has_the_recorded_bits")
