"""The API documentation of a root: made by the package from its own apps, as JSON and as rows."""

import json
from pathlib import Path
from typing import Any

from appworld.apps import get_all_apps
from appworld.collections.api_docs import ApiDocCollection
from appworld.common.constants import CANARY_STRING

_COLUMNS = ("api_name", "path", "method", "description", "parameters", "response_schemas")


def save_documents(model: Any, root: Path) -> None:
    """Write `data/api_docs/standard/<app>.json` and the rows of `model` (api_docs.ApiDoc)."""
    folder = root / "data" / "api_docs" / "standard"
    folder.mkdir(parents=True)
    built = ApiDocCollection.build(tuple(get_all_apps(skip_admin=True)))
    rows: list[Any] = []
    for app in get_all_apps(skip_admin=True):
        documents = {name: dict(document) for name, document in sorted(built[app].items()) if name != "error_message"}
        for document in documents.values():
            document["canary_string"] = CANARY_STRING
            rows.append(model(app_name_=app, **{column: document[column] for column in _COLUMNS}))
        text = json.dumps(documents, indent=1, sort_keys=False, ensure_ascii=False)
        (folder / f"{app}.json").write_text(text + "\n", encoding="utf-8")
    model.save_all(rows)
