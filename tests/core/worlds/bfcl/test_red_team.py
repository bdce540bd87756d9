"""Agents' text that wants more than calls: files, ground truth, network, processes, the verdict, or endless work."""

from pathlib import Path

import pytest

from tasks.core.interfaces.world import ExecutionTimeout
from tasks.core.worlds.bfcl.interpreter import BFCL, INTERPRETERS
from tasks.core.worlds.bfcl.pool import BfclPool
from tasks.core.worlds.bfcl.world import BfclWorld
from tests.core.worlds.bfcl.recorded_episodes import play

pytestmark = pytest.mark.bfcl

TASK = "multi_turn_base_0"
PACKAGE = Path(__file__).parents[4] / INTERPRETERS / f"{BFCL.name}-{BFCL.digest}" / "lib"
CANARY = "the canary sings"


def decoded(code: str) -> str:
    """`code`, an expression, evaluated by the package's decoder."""
    return f"[echo(content='<' + str({code}) + '>')]"


def executed(code: str) -> str:
    """`code`, an expression, evaluated by the package's executor: a dictionary of dictionaries is a call to it."""
    return "[echo(content={" + repr(f"(lambda **k: str({code}))") + ": {'a': 1}})]"


SUBCLASSES = "().__class__.__base__.__subclasses__()"
OS = "__import__('os')"
READING = {
    "open": "open('{file}').read()",
    "open ground truth": "[open(f).read() for f in "
    "__import__('glob').glob('{package}/**/possible_answer/*', recursive=True)][0]",
    "io": "__import__('io').FileIO('{file}').read()",
    "os.open": "__import__('posix').read(__import__('posix').open('{file}', 0), 99)",
    "listdir": "__import__('os').listdir('{folder}')",
    "scandir": "[e.name for e in __import__('os').scandir('{folder}')][0]",
    "pathlib": "__import__('pathlib').Path('{file}').read_text()",
    "mmap": "__import__('mmap').mmap(__import__('posix').open('{file}', 0), 9)",
    "linecache": "__import__('linecache').getlines('{file}')[0]",
    "importlib": "__import__('importlib.util').util.spec_from_file_location('x', '{file}').loader.get_data('{file}')",
    "the package's loader": "__import__('bfcl_eval.utils').utils.load_ground_truth_entry('multi_turn_base')",
    "the package's tasks": "__import__('bfcl_eval.utils').utils.load_dataset_entry('multi_turn_base')[0]",
    "subclasses": "[c for c in " + SUBCLASSES + " if c.__name__ == 'FileIO'][0]('{file}').read()",
    "subprocess": "__import__('subprocess').run(['cat', '{file}'], capture_output=True).stdout",
    "popen": "__import__('os').popen('cat {file}').read()",
    "ctypes": "1 // (__import__('ctypes').CDLL(None).open(b'{file}', 0) + 1)",
    "proc environ": "open('/proc/self/environ').read()",
    "proc maps": "open('/proc/self/maps').read()",
    "parent's memory": "open('/proc/%d/mem' % __import__('os').getppid(), 'rb').read(9)",
    "parent's files": "__import__('os').listdir('/proc/%d/fd' % __import__('os').getppid())",
}
REACHING = {
    "socket": "__import__('socket').create_connection(('127.0.0.1', {port}), 2)",
    "unix socket": "__import__('socket').socketpair()",
    "urllib": "__import__('urllib.request').request.urlopen('http://127.0.0.1:{port}').read()",
    "name look-up": "__import__('socket').gethostbyname('localhost')",
    "fork": "__import__('os').fork()",
    "kill the parent": "__import__('os').kill(__import__('os').getppid(), 9)",
    "ptrace": "1 // (__import__('ctypes').CDLL(None).ptrace(16, __import__('os').getppid(), 0, 0) + 1)",
    "write a file": "open('{folder}/stolen', 'w').write('x')",
    "another descriptor": "[__import__('os').read(n, 9) for n in range(64) if n != {channel}]",
}
ENDING = {
    "exit": "__import__('os')._exit(3)",
    "sys.exit": "__import__('sys').exit(3)",
    "hang": "[0 for _ in iter(int, 1)]",
    "sleep": "__import__('threading').Event().wait(9999)",
    "memory": "len(bytearray(2 ** 40))",
    "much memory": "len([0] * 10 ** 8)",
    "huge power": "9 ** 9 ** 9",
    "crash": "__import__('ctypes').string_at(0)",
    "recursion": "(lambda f: f(f))(lambda f: f(f))",
    "threads": "[__import__('_thread').start_new_thread(lambda: None, ()) for _ in range(9)]",
    "closed channel": "__import__('os').closerange(0, 99)",
}
VERDICT = {
    "checker": "[setattr(m, 'state_checker', lambda *a: dict(valid=True)) for n, m in "
    "__import__('sys').modules.items() if n.endswith('multi_turn_checker')]",
    "equal files": "[setattr(c, '__eq__', lambda *a: True) for c in " + SUBCLASSES + " if c.__name__ == 'Directory']",
    "forged answer": "[c.send(dict(played=1, calls=['x'], results=['x'])) for c in __import__('gc').get_objects() "
    "if type(c).__name__ == 'Channel']",
    "wrong shape": "[c.send(dict(played=[], calls=3)) for c in __import__('gc').get_objects() "
    "if type(c).__name__ == 'Channel']",
}


def attempt(world: BfclWorld, text: str) -> str:
    """Text that the agent got to see, and nothing is solved by it; empty when its process was ended."""
    episode = world.open(TASK, 0)
    try:
        shown = episode.step(text).text
        assert not episode.evaluate().success
        return shown
    except ExecutionTimeout as end:
        assert str(end)
        return ""
    finally:
        episode.close()


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("canary")
    (folder / "song").write_text(CANARY)
    folder.chmod(0o755)
    return {"folder": folder, "file": folder / "song", "package": PACKAGE, "port": 9, "channel": 0}


def leaks(world: BfclWorld, code: str) -> list[str]:
    """Output where an answer to the agent's expression is shown."""
    found = [attempt(world, decoded(code)), attempt(world, executed(code))]
    return [text for text in found if "terminal_output" in text]


def test_these_ways_do_evaluate_python(world: BfclWorld) -> None:
    for text in (decoded("6 * 7"), executed("6 * 7")):
        assert "42" in attempt(world, text)


def test_python_that_draws_is_answered_alike_in_every_episode(world: BfclWorld) -> None:
    drawing = decoded("__import__('random').random()")
    first = attempt(world, drawing)
    assert "<0." in first and attempt(world, drawing) == first


@pytest.mark.parametrize("name", READING)
def test_no_file_is_read(world: BfclWorld, places: dict[str, object], name: str) -> None:
    assert leaks(world, READING[name].format(**places)) == []


@pytest.mark.parametrize("name", REACHING)
def test_nothing_else_is_reached(world: BfclWorld, places: dict[str, object], name: str) -> None:
    assert leaks(world, REACHING[name].format(**places)) == []
    assert [left.name for left in Path(str(places["folder"])).iterdir()] == ["song"]


@pytest.mark.parametrize("name", ENDING)
def test_what_ends_or_blocks_a_player_ends_this_episode_only(world: BfclWorld, name: str) -> None:
    other = world.open(TASK, 0)
    for text in (decoded(ENDING[name]), executed(ENDING[name])):
        attempt(world, text)
    assert "terminal_output" not in attempt(world, "[echo(content='x')" * 5000)
    assert "current_working_directory" in other.step("[pwd()]").text
    other.close()


@pytest.mark.parametrize("name", VERDICT)
def test_no_attempt_changes_a_verdict(world: BfclWorld, name: str) -> None:
    for text in (decoded(VERDICT[name]), executed(VERDICT[name])):
        attempt(world, text)
    assert play(world, TASK, world.demonstration(TASK)).verdict.success


def test_the_judge_evaluates_no_text(pool: BfclPool, world: BfclWorld) -> None:
    """A player that lies can make it call the task's functions, which any agent may, and nothing else."""
    truth = "judged_{n}_ground_truth_eval_multi_turn_base_0_GorillaFileSystem_instance"
    for lie in (
        "open(file='/etc/passwd')",
        "__import__(name='os').system('x')",
        f"{truth}._load_scenario(scenario={{}})",
        f"setattr({truth}, 'root', 1)",
        "(lambda: 1)()",
        "ls().__class__",
        "[c for c in ().__class__.__base__.__subclasses__()]",
        "ls(" * 300 + ")" * 300,
    ):
        turns = [[[lie.replace("{n}", str(number))] for number in range(1, 40)]] * 5
        assert pool.judge(TASK, turns) != ""
    assert play(world, TASK, world.demonstration(TASK)).verdict.success


def test_no_call_reaches_the_ground_truth(pool: BfclPool) -> None:
    """Not even one that gives it the folder too many which the agent has: their states would be equal again.

    In parentheses, because the package puts the agent's own instance before every `name(`.
    """
    truth = "judged_{n}_ground_truth_eval_multi_turn_base_1_GorillaFileSystem_instance"
    tampering = [f"({truth}.mkdir)(dir_name='intruder')".replace("{n}", str(number)) for number in range(1, 99)]
    turns = [
        [["ls(a=True)"]],
        [["cd(folder='workspace')", "mv(source='log.txt',destination='archive')"]],
        [["cd(folder='archive')", "grep(file_name='log.txt',pattern='Error')"]],
        [["tail(file_name='log.txt',lines=20)"]],
    ]
    assert pool.judge("multi_turn_base_1", turns) == ""
    turns[1].insert(0, ["mkdir(dir_name='intruder')", *tampering])
    assert "instance_state_mismatch" in pool.judge("multi_turn_base_1", turns)
