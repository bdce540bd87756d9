import pytest

from flows.line_width import fitted


def test_a_long_line_hangs_below_its_own_indent_and_no_word_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    digest = "d" * 64
    found = list(fitted(["short", f"  wrote {'data/policy ' * 5}{digest}", ""]))
    assert found[0] == "short" and found[-1] == ""
    assert found[1].startswith("  wrote data/policy") and len(found[1]) <= 60
    assert found[-2] == f"      {digest}", "longer than the terminal, and whole"
    assert " ".join(" ".join(found).split()) == f"short wrote {'data/policy ' * 5}{digest}"


def test_what_is_read_by_other_programs_has_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, fitted(["word " * 100]))) == 79
