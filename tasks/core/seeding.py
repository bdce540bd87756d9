"""Every random stream of a run, derived from the one seed in params.yaml."""

import hashlib


def derive_seed(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the stream called `names`.

    Streams with different names are independent, and adding a stream changes no other one.
    The value depends on nothing but the arguments (no hash randomisation, no platform).
    """
    text = "\x1f".join([str(seed), *(str(name) for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
