"""The commit that a Hugging Face hub id stands at: scores are of pinned models."""

import re
from pathlib import Path

from tasks.core.records.files import ArtifactError

_COMMIT = re.compile(r"[0-9a-f]{40}")


def pinned_commit(name: str, revision: str) -> str:
    """Return the commit of a hub id at a branch, tag or commit ("": its main branch); offline, that of the local cache.

    Raises ArtifactError.
    """
    if _COMMIT.fullmatch(revision):
        return revision
    import httpx2
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError

    try:
        found = HfApi().model_info(name, revision=revision or None, timeout=10).sha
    except (HfHubHTTPError, httpx2.HTTPError, OSError) as error:
        cached = try_to_load_from_cache(name, "config.json", revision=revision or None)
        if not isinstance(cached, str):
            reason = str(error).strip().splitlines()[0]
            raise ArtifactError(f"{name}: neither a folder nor a model that the hub gives: {reason}") from None
        found = Path(cached).parent.name
    if found is None:
        raise ArtifactError(f"{name}: the hub names no commit for it")
    return found
