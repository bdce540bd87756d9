"""Variables of whoever called: of a hook, of a shell with a proxy, of a container."""

import os
import subprocess
import sys
from pathlib import Path
from urllib.request import proxy_bypass_environment

import pytest

from tasks.core.processes.caller_variables import settle_variables

ROOT = Path(__file__).resolve().parents[3]
ALWAYS = {"USER": "someone", "DO_NOT_TRACK": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}


def settled(**given: str) -> dict[str, str]:
    variables = {"USER": "someone", **given}
    settle_variables(variables)
    return variables


def test_git_is_left_to_find_the_repository_from_the_folder() -> None:
    hook = {"GIT_DIR": "/a/.git", "GIT_INDEX_FILE": "/a/.git/index.lock", "GIT_WORK_TREE": "/a", "GIT_PREFIX": "b/"}
    assert settled(**hook, GIT_AUTHOR_NAME="me") == {**ALWAYS, "GIT_AUTHOR_NAME": "me"}


@pytest.mark.parametrize("proxy", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "https_proxy"])
@pytest.mark.parametrize("given", [{}, {"no_proxy": "intra.net"}, {"NO_PROXY": "intra.net, 127.0.0.1"}])
def test_servers_of_this_machine_are_asked_without_a_proxy(proxy: str, given: dict[str, str]) -> None:
    found = settled(**given, **{proxy: "http://proxy:3128"})
    assert found["no_proxy"] == found["NO_PROXY"]
    for host in ("127.0.0.1:4200", "localhost:5000", *(["intra.net"] if given else [])):
        assert proxy_bypass_environment(host, {"no": found["no_proxy"]})
    assert not proxy_bypass_environment("example.org", {"no": found["no_proxy"]})
    again = dict(found)
    settle_variables(again)
    assert again == found


def test_nothing_is_added_where_there_is_no_proxy_or_none_is_used() -> None:
    assert settled() == ALWAYS
    assert settled(HTTP_PROXY="http://p", NO_PROXY="*")["NO_PROXY"] == "*"


@pytest.mark.parametrize(("before", "says"), [("", b"collects anonymous usage data"), ("settle_variables()", b"")])
def test_packages_send_no_usage_data_from_a_terminal(before: str, says: bytes, tmp_path: Path) -> None:
    """Prefect's client reads the variable as it is imported; where it collects data, it says so."""
    code = f"from tasks.core.processes.caller_variables import settle_variables\n{before}\nimport prefect\nprint('end')"
    variables = {"PATH": os.environ["PATH"], "PREFECT_HOME": str(tmp_path)}
    reader, terminal = os.openpty()
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=terminal, stderr=terminal, env=variables, check=True)
    printed = os.read(reader, 4096)
    os.close(terminal), os.close(reader)
    assert says in printed and (says or printed == b"end\r\n")


def test_a_user_without_an_entry_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 7)
    variables: dict[str, str] = {}
    settle_variables(variables)
    assert variables == {**ALWAYS, "USER": f"uid{2**31 - 7}"}
    assert settled() == ALWAYS


def test_every_command_settles_them() -> None:
    commands = ("flows/cli/command.py", "flows/stage.py", "tasks/record_lineage/__main__.py")
    files = [ROOT / command for command in commands]
    assert [file for file in files if "    settle_variables()\n" not in file.read_text(encoding="utf-8")] == []


def test_a_client_of_prefect_can_be_made_behind_a_socks_proxy() -> None:
    """Prefect's httpx makes a client of ALL_PROXY at once, be it used or not."""
    code = "import httpx, httpx2; httpx.Client(); httpx2.Client()"
    subprocess.run([sys.executable, "-c", code], env={"ALL_PROXY": "socks5://127.0.0.1:9"}, check=True)
