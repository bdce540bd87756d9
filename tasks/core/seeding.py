"""Random streams of a run, all derived from the one seed in params.yaml."""

import hashlib


def derive_seed(seed: int, *names: str | int) -> int:
    """Return a 63-bit seed for the stream called `names`.

    Streams with different names are independent, and adding a stream changes no other stream. The value depends only on
    the arguments (no hash randomisation, no platform).
    """
    text = "\x1f".join([str(seed), *(str(name) for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
