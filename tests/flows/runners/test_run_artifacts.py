"""The rows of the table of scores in Prefect's UI."""

from flows.runners.run_artifacts import score_rows
from tests.finished_run import scores, training_budget


def test_a_split_is_one_row_and_a_separate_training_budget_is_another() -> None:
    plain = scores("test_normal")
    figures = {"policy of iteration": "i002", "TGC": 70.0, "SGC": 50.0, "base TGC": 30.0, "base SGC": 10.0}
    assert list(score_rows(plain)) == [{"split": "test_normal", **figures}]
    tokens = "1,500 tokens per turn, 3,000 per observation"
    main = {"split": f"test_normal, 40 turns, {tokens}", **figures}
    again = {"split": f"test_normal, 20 turns, {tokens} (training budget)", **figures, "TGC": 60.0}
    both = plain.model_copy(update={"training_budget": training_budget(plain, tgc=60.0)})
    assert list(score_rows(both)) == [main, again]
    same = plain.model_copy(update={"training_budget": training_budget(plain, turns=40)})
    assert list(score_rows(same)) == [main]
