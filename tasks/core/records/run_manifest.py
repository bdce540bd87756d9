"""The parameters of the run in hand: those that version_stages recorded, whatever params.yaml says by now."""

from tasks.core.config.params import Params, parse_params
from tasks.core.records.documents import RunManifest, read_document
from tasks.core.records.layout import Layout


def recorded_params(layout: Layout) -> Params:
    """Return the parameters in data/manifest.json. Raises ArtifactError where there is none, and ParamsError."""
    return parse_params(read_document(layout.manifest, RunManifest).params, str(layout.manifest))
