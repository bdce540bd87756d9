"""Events of a checkout for Prefect, on which automations act (prefect.yaml has one: a note in the logs).

Where no Prefect server is configured nothing is sent (Prefect itself would start one for it), nor to one that doesn't
answer: Prefect would try for seconds, and say so when the command ends. Imports Prefect: import this module late.
"""

from pathlib import Path
from typing import Any, Literal

from prefect.events import emit_event
from prefect.settings import PREFECT_API_URL

from tasks.core.processes.addresses import fault_of

Happened = Literal["collapse-warned", "champion-changed", "schedule-skipped"]

_PATIENCE_S = 2.0


def tell(happened: Happened, text: str, root: Path, **facts: Any) -> None:
    """Send the event `loopline.HAPPENED` of the checkout `root`, with `text` in one line and `facts` as its payload."""
    url = PREFECT_API_URL.value()
    if url is None or fault_of(f"{url.rstrip('/')}/health", _PATIENCE_S) is not None:
        return
    resource = {
        "prefect.resource.id": f"loopline.checkout.{root.resolve()}",
        "prefect.resource.name": root.resolve().name,
    }
    emit_event(event=f"loopline.{happened}", resource=resource, payload={"text": text, **facts})
