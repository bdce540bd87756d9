"""Write sampled rollouts to MLflow as traces, from their tables, so that playing rollouts never waits for MLflow."""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from tasks.core.config.params import Params
from tasks.core.lineage.mlflow_store import Store
from tasks.core.processes.addresses import without_credentials
from tasks.core.records.documents import read_document
from tasks.core.records.files import replacing
from tasks.core.records.layout import Layout
from tasks.core.records.rollout_sets import RolloutSet, script, viewer_places
from tasks.core.records.schemas import SELECTED_POLICY
from tasks.core.records.timings import Timings
from tasks.record_lineage.tracing.traced_rollout import TracedRollout, drawn_rows, traced_rollout

if TYPE_CHECKING:
    from mlflow.entities import Trace
    from mlflow.store.entities import PagedList

_REMEDY = (
    "they need MLflow 3.4 or newer on a database; `python -m tasks.record_lineage` writes what is missing, "
    "lineage.traced_rollouts: 0 asks for none"
)


@dataclass(frozen=True)
class TraceRecorder:
    """The traces of one MLflow run."""

    store: Store
    run_id: str
    layout: Layout
    params: Params
    model_id: str | None = None
    """The run's logged model, on whose page the traces of the selected policy's test rollouts stand."""

    def record(self, sets: Iterable[RolloutSet]) -> dict[str, str]:
        """Write the traces of the drawn rollouts of `sets` that MLflow does not hold yet.

        Returns the address of each drawn rollout's trace in MLflow's pages, by the rollout's place in the report. A
        store that accepts no traces causes a warning; the run is recorded all the same. Raises ArtifactError.
        """
        from mlflow.exceptions import MlflowException

        try:
            return self._record(sets) if self.params.lineage.traced_rollouts else {}
        except (MlflowException, NotImplementedError) as error:
            reason = without_credentials(str(error).strip().partition("\n")[0][:300])
            warnings.warn(f"no traces of rollouts: {reason} ({_REMEDY})", stacklevel=2)
            return {}

    def _record(self, sets: Iterable[RolloutSet]) -> dict[str, str]:
        from tasks.record_lineage.tracing.mlflow_trace import trace_id

        held, traces = self._held(), dict[str, str]()
        tokenizer = Tokenizer.from_file(str(self.layout.base_policy / "tokenizer.json"))
        for rollouts in sets:
            drawn = [traced for traced in self._drawn(rollouts, tokenizer) if traced.turns]
            self._write([traced for traced in drawn if trace_id(self.run_id, traced) not in held], rollouts)
            traces |= {traced.place: trace_id(self.run_id, traced) for traced in drawn}
        return {place: self.store.page(trace) for place, trace in traces.items()}

    def _drawn(self, rollouts: RolloutSet, tokenizer: Tokenizer) -> Iterator[TracedRollout]:
        table = rollouts.read(trusted=True)  # validation takes longer than all else here
        places, played = viewer_places(rollouts.name, table), rollouts.path.stat().st_mtime
        clocks = _clocks(rollouts.timings)
        for row in drawn_rows(table, self.params.lineage.traced_rollouts, self.params.seed, rollouts.name):
            name = f"{table['task_id'][row]}#{table['rollout_index'][row]}"
            yield traced_rollout(table, row, places[row], tokenizer, clocks.get(name, ()), played)

    def _write(self, drawn: list[TracedRollout], rollouts: RolloutSet) -> None:
        from mlflow.tracing.client import TracingClient

        from tasks.record_lineage.tracing.mlflow_trace import spans_of, trace_info

        if not drawn:
            return
        client = TracingClient(self.store.uri)
        page = (self.layout.report / "index.html").as_uri()
        for traced in drawn:
            tags = {"rollouts": rollouts.label, "report": f"{page}#{traced.place}"}
            model = self.model_id if traced.row.get("policy") == SELECTED_POLICY else None
            info = trace_info(traced, self.run_id, self.store.experiment_id, self.params.world.name, tags, model)
            client.start_trace(info)
        spans = [span for traced in drawn for span in spans_of(traced, self.run_id)]
        client.log_spans(self.store.experiment_id, spans)

    def _held(self) -> set[str]:
        """Return ids of the run's traces that have their spans, which MLflow tags with the spans' location."""
        from mlflow.tracing.constant import TraceTagKey

        held, token = set[str](), None
        while True:
            page: PagedList[Trace] = self.store.client.search_traces(
                locations=[self.store.experiment_id],
                run_id=self.run_id,
                include_spans=False,
                max_results=500,
                page_token=token,
            )
            held |= {trace.info.trace_id for trace in page if TraceTagKey.SPANS_LOCATION in trace.info.tags}
            token = page.token
            if not token:
                return held


def write_addresses(path: Path, addresses: Mapping[str, str]) -> None:
    """Write the script from which the report's page takes the addresses; without traces, write none."""
    if addresses:
        with replacing(path) as temporary:
            lines = (script("loopline_traces", viewer_place, address) for viewer_place, address in addresses.items())
            temporary.write_text("".join(lines), encoding="utf-8")
    else:
        path.unlink(missing_ok=True)


def _clocks(path: Path | None) -> Mapping[str, list[float]]:
    """Return the times at which each rollout's turns were played, by the rollout's name; empty where unknown."""
    return read_document(path, Timings).clocks if path is not None and path.exists() else {}
