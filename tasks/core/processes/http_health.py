"""The health of a server of this machine, or of one that a user names."""

import httpx2

_PATIENCE_S = 5.0


def is_healthy(url: str) -> bool:
    """Whether `url` answers with status 200. Proxies of the environment are not asked."""
    try:
        return httpx2.get(url, timeout=_PATIENCE_S, trust_env=False).status_code == httpx2.codes.OK
    except httpx2.TransportError:
        return False
