"""Record a finished pipeline: `python -m tasks.record_lineage` in its folder."""

import sys
from pathlib import Path

from tasks.core.processes.caller_variables import settle_variables
from tasks.core.records.layout import Layout
from tasks.core.records.run_manifest import recorded_params
from tasks.record_lineage.recording import Pipeline, record_pipeline, recordable_later, require_as_it_ran


def main() -> int:
    """Record the finished pipeline in the current folder."""
    settle_variables()
    layout = Layout(Path.cwd())
    try:
        pipeline = Pipeline(layout, recorded_params(layout))
        require_as_it_ran(pipeline)
        with recordable_later():
            recorded = record_pipeline(pipeline)
    except (RuntimeError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    version = (
        f"model version {recorded.model_name}/{recorded.model_version}" if recorded.model_version else "no version"
    )
    print(f"run {recorded.run_id}, {version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
