"""Versions in a real SQLite store: finding, comparing and promoting them through the command."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from flows.cli.app import main
from tasks.core.config.params import Params
from tasks.core.records.comparison import Comparison
from tasks.core.records.documents import read_document, write_document
from tasks.core.records.layout import Layout
from tasks.core.records.scores import Candidate, Selection
from tasks.core.registry.run_registry import compare_versions, open_registry, params_of_run
from tasks.record_lineage.recording import Pipeline, record_pipeline
from tests.record_lineage.conftest import copied, run_again

pytestmark = pytest.mark.whole_runs

DIGEST = "a" * 64
AnotherRun = Callable[..., Pipeline]


@pytest.fixture
def versions(layout: Layout, params: Params, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """Two versions to work with."""
    monkeypatch.chdir(layout.root)
    return recorded_twice(layout, params)


@pytest.fixture(scope="module")
def kept_versions(tmp_path_factory: pytest.TempPathFactory, finished: Path, params: Params) -> Layout:
    """Two versions for tests that only read them."""
    return recorded_twice(copied(finished, tmp_path_factory.mktemp("versions")), params)


def recorded_twice(layout: Layout, params: Params) -> Layout:
    """The first version solves the three tasks of one scenario, the second one task more, trained otherwise."""
    record_pipeline(Pipeline(layout, params))
    update = params.update.model_dump(mode="json") | {"learning_rate": 0.5}
    record_pipeline(run_again(layout, params, "better", {"a1", "a2", "a3", "b1"}, update=update))
    return layout


@pytest.fixture
def seen_versions(kept_versions: Layout, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.chdir(kept_versions.root)
    return kept_versions


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_the_newest_version_is_challenger_and_list_shows_it(
    seen_versions: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["registry", "list", "--json"]) == 0
    assert [one["number"] for one in json.loads(printed(capsys))["versions"]] == [1, 2]
    assert main(["registry", "list"]) == 0
    head, first, second = printed(capsys).splitlines()
    assert head == "loopline-pocketworld-pocket: 2 versions"
    assert first.split()[-3:] == ["i002", "parent", "none"]
    assert second.split()[-4:] == ["i002", "parent", "none", "challenger"]


def test_versions_are_those_of_the_run_whatever_params_say_by_now_and_the_rule_is_that_of_now(
    versions: Layout, params: Params, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = params.lineage.promotion.model_copy(update={"not_worse_on": "test_challenge"})
    lineage = params.lineage.model_copy(update={"promotion": rule})
    edited = params.model_copy(update={"world": params.world.model_copy(update={"name": "bandit"}), "lineage": lineage})
    versions.params.write_text(yaml.safe_dump(edited.model_dump(mode="json")), encoding="utf-8")
    assert main(["registry", "list"]) == 0
    assert printed(capsys).startswith("loopline-pocketworld-pocket: 2 versions")
    ran = params_of_run(versions)
    assert (ran.world, ran.lineage.promotion.not_worse_on) == (params.world, "test_challenge")
    versions.manifest.unlink()  # a fresh clone, in which nothing has run
    assert params_of_run(versions).world.name == "bandit"


def test_the_spread_over_seeds_by_hand(
    versions: Layout, another_run: AnotherRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """Versions 1 and 3 solve 3 and 4 of 6 tasks: mean 58.3, deviation 100 / 6 / sqrt(2); 2 is another method."""
    record_pipeline(another_run("seed 1", {"a1", "a2", "a3", "b1"}, seed=1, profiles=["default", "elsewhere"]))
    assert main(["registry", "compare", "2", "3"]) == 0
    assert "training seeds |" not in printed(capsys)
    assert main(["registry", "compare", "1", "3"]) == 0
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed(capsys).splitlines()]
    assert ["test_normal", "TGC", "58.3 +-11.8"] in cells and ["test_normal", "SGC", "50.0 +-0.0"] in cells


def test_compare_reads_what_the_versions_hold(seen_versions: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["registry", "compare", "1", "challenger"]) == 0
    assert "| 2 - 1 " in printed(capsys)
    folder = seen_versions.comparisons / "loopline-pocketworld-pocket-1-2"
    found = read_document(folder / "comparison.json", Comparison)
    assert [(one.name, one.facts["aliases"]) for one in found.models] == [("1", "-"), ("2", "challenger")]
    scores = found.models[0].splits["test_normal"]
    assert (scores.rollouts_per_task, scores.levels["all"].tgc, scores.levels["all"].sgc) == (2, 50, 50)
    assert {level: score.tgc for level, score in scores.levels.items()} == {"all": 50, "1": 100, "2": 0}
    assert list(scores.per_k) == ["1", "2"]
    assert (scores.per_k["2"].pass_hat, scores.per_k["2"].best_of) == (50, 50), "both runs solve the same tasks"
    assert scores.behaviour is not None
    differences = {(one.split, one.level, one.metric): one for one in found.differences}
    gain = differences["dev", "all", "tgc"]
    assert (gain.first, gain.second, gain.pairs, gain.scenarios) == ("1", "2", 6, 2)
    assert gain.difference == pytest.approx(100 / 6)
    assert differences["test_challenge", "all", "sgc"].difference == 0
    page = (folder / "comparison.md").read_text()
    assert "+16.7" in page and re.search(r"\| test_normal +\| 2 +\| 50\.0 \+-[\d.]+ / 50\.0 ", page)


def test_one_version_named_twice_is_compared_with_nothing(seen_versions: Layout, params: Params) -> None:
    registry = open_registry(seen_versions.root, params)
    comparison, folder = compare_versions(registry, ["2", "challenger"], seen_versions.root)
    assert [one.name for one in comparison.models] == ["2"]
    assert comparison.differences == ()
    assert folder.name.endswith("-2")


def test_an_unknown_version_is_named_with_those_that_exist(
    seen_versions: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["registry", "compare", "1", "9"]) == 2
    assert "has no version '9'; there are: 1, 2, challenger" in capsys.readouterr().err
    assert main(["registry", "--model", "other", "promote", "1"]) == 2
    assert "other has no version '1'; it has no versions; run the pipeline" in capsys.readouterr().err


def test_a_version_whose_evaluation_is_damaged_is_named_and_nothing_is_written(
    versions: Layout, params: Params, capsys: pytest.CaptureFixture[str]
) -> None:
    source = open_registry(versions.root, params).find("1").source.removeprefix("file://")
    (Path(source) / "evaluation" / "outcomes.parquet").write_bytes(b"")
    assert main(["registry", "compare", "1", "2"]) == 1
    error = capsys.readouterr().err
    assert "version 1 of loopline-pocketworld-pocket has no evaluation that this code can read" in error
    assert "outcomes.parquet: damaged parquet" in error
    assert not versions.comparisons.exists() or not list(versions.comparisons.iterdir())


def test_a_version_that_no_run_recorded_ends_in_one_line(
    versions: Layout, params: Params, capsys: pytest.CaptureFixture[str]
) -> None:
    client = open_registry(versions.root, params).store.client
    client.create_registered_model("foreign")
    client.create_model_version("foreign", versions.world.as_uri())
    for command in (["score", "models:/foreign/1"], ["registry", "--model", "foreign", "compare", "1"]):
        assert main(command) == 1
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert "version 1: has no tag adapter_digest" in line


def test_promotion_follows_the_rule(
    versions: Layout,
    another_run: AnotherRun,
    params: Params,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[tuple[str, int]] = []
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.setattr(
        "flows.runners.run_artifacts.tell", lambda happened, *_, version: told.append((happened, version))
    )
    assert main(["registry", "promote", "1"]) == 0
    assert "against the base policy, since there is no champion" in printed(capsys)
    assert main(["registry", "promote", "2"]) == 0
    assert "TGC on dev: better (+16.7 points" in printed(capsys)
    registry = open_registry(versions.root, params)
    assert [version.aliases for version in registry.versions] == [(), ("champion",)]
    record_pipeline(another_run("worse", {"a1"}))
    assert main(["registry", "promote", "challenger"]) == 1
    refused = printed(capsys)
    assert "version 3 against version 2, the champion" in refused
    assert "TGC on dev: not better (-50.0 points" in refused
    assert "not promoted" in refused
    assert open_registry(versions.root, params).find("champion").number == 2
    assert main(["registry", "promote", "champion"]) == 0
    assert "is the champion already" in printed(capsys)
    assert told == [("champion-changed", 1), ("champion-changed", 2)], "of changes only, by number"


def test_a_version_trained_from_another_ones_checkpoint_has_it_as_parent(
    pipeline: Pipeline, params: Params, another_run: AnotherRun
) -> None:
    record_pipeline(pipeline)
    selection = read_document(pipeline.layout.selection, Selection)
    chosen = Candidate(iteration="i003", dev_tgc=99.0, dev_sgc=5.0, adapter_digest=DIGEST)
    write_document(pipeline.layout.selection, Selection(**chosen.model_dump(), candidates=selection.candidates))
    record_pipeline(another_run("i002", {"a1"}))
    registry = open_registry(pipeline.layout.root, params)
    assert [version.tags["parent_version"] for version in registry.versions] == ["none", "1"]


def test_a_version_over_a_warm_started_base_brings_that_base(layout: Layout, another_run: AnotherRun) -> None:
    run = another_run("warm", {"a1"}, policy={"source": "owner/model", "revision": "a" * 40, "warm_start": {}})
    record_pipeline(run)
    registry = open_registry(layout.root, run.params)
    with registry.files(registry.find("1")) as folder:
        assert json.loads((folder / "base.json").read_text())["inside"]


def test_a_pulled_version_needs_nothing_of_the_project(versions: Layout, params: Params) -> None:
    registry = open_registry(versions.root, params)
    shutil.rmtree(versions.data)
    with registry.files(registry.find("2")) as folder:
        assert (folder / "adapter_model.safetensors").read_bytes() == b"better"
        assert json.loads((folder / "base.json").read_text()) == {"inside": True, "name": "base", "revision": None}
        assert (folder / "base" / "tokenizer.json").exists()
