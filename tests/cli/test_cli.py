"""The command line as a user meets it: help, typos, exit codes, progress."""

from __future__ import annotations

import io
import re
import signal
import sys
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from so101.cli import app as program
from so101.cli.progress import PlainReporter, format_duration, format_rate, make_reporter
from so101.cli.signals import Stopped
from so101.cli.stage import print_result
from so101.pipeline.progress import StageResult
from so101.pipeline.stages import STAGES

LEARNING = ["merge", "sources", "train", "rl", "metrics", "compare", "record-pseudo-real"]
FAMILIES = ["tasks", "preview", "probe", "expert", "demo"]
COMMANDS = [
    "run",
    *STAGES,
    *LEARNING,
    *FAMILIES,
    "config",
    "grasp-check",
    "identify",
    "record-pseudo-real",
    "workspace",
    "test",
]


@pytest.fixture
def twin(capsys, monkeypatch):
    """twin("generate", "--help") -> (exit code, stdout, stderr), in a wide terminal."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments):
        code = program.main(list(arguments))
        return (code, *capsys.readouterr())

    return call


def test_help_lists_every_command(twin):
    code, out, _ = twin("--help")
    assert code == 0
    assert set(COMMANDS) == set(re.findall(r"^│ ([a-z][a-z-]+) ", out, re.MULTILINE)) and "Example: ./twin run" in out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(twin, command):
    code, out, _ = twin(command, "--help")
    assert code == 0 and f"Example: ./twin {command}" in out
    if command in STAGES or command == "run":
        assert all(
            option in out for option in ("--run", "--configs", "--preset", "--set", "--workers", "--task", "--fresh")
        )


@pytest.mark.parametrize(
    ("command", "text"),
    [
        *((name, "stopped; the same command resumes") for name in ("run", "train", "eval", "transfer")),
        *((name, "stopped") for name in ("identify", "merge")),
    ],
)
def test_only_what_keeps_its_work_says_that_it_resumes(twin, monkeypatch, command, text):
    def stop(**_):
        raise Stopped(signal.SIGINT)

    monkeypatch.setattr(program, "app", stop)
    assert twin(command) == (130, "", text + "\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_example_parses(command):
    """Options in the examples exist, and the settings they override do too."""
    import typer.main

    from so101.config import load_config

    group = typer.main.get_command(program.app)
    for example in re.findall(r"\./twin ([a-z-]+ [^;(]*)", group.commands[command].epilog):
        name, *arguments = example.split()
        context = group.commands[name].make_context(name, arguments)
        load_config(preset=context.params.get("preset"), overrides=context.params.get("set_") or [])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["genrate"], "Did you mean 'generate'"),
        (["generate", "--wrokers", "2"], "--workers"),
        (["generate", "--preset", "ful"], "did you mean 'full'"),
        (["generate", "--set", "skilgen.nn_k=1"], "did you mean 'skillgen'"),
        (["generate", "--workers", "0"], "--workers"),
        (["run", "--task", "cube"], "did you mean 'cube_in_box'"),
        (["config", "skilgen"], "did you mean 'skillgen'"),
        (["run", "--demos", "0"], "target_demos is 0"),
    ],
)
def test_typos_and_bad_values_exit_with_2_and_help(twin, arguments, text):
    code, _, errors = twin(*arguments)
    assert code == 2 and text in errors and "Traceback" not in errors


def test_missing_input_exits_with_3_and_debug_shows_where(twin, tmp_path):
    arguments = ["smooth", "--run", str(tmp_path / "absent")]
    code, _, errors = twin(*arguments)
    assert code == 3 and errors.startswith("error: smooth needs") and "Traceback" not in errors
    assert "Traceback" in twin(*arguments, "--debug")[2]


def test_a_locked_down_place_exits_without_traceback(twin):
    code, _, errors = twin("seeds", "--run", "/proc/nowhere/run")
    assert code in (1, 5) and errors.startswith("error: /proc/nowhere") and "Traceback" not in errors


def test_config_prints_yaml_with_overrides_applied(twin):
    code, out, _ = twin("config", "skillgen", "deploy", "--preset", "full", "--set", "skillgen.nn_k=5", "--demos", "7")
    shown = yaml.safe_load(out)
    assert code == 0 and list(shown) == ["skillgen", "deploy"]
    assert shown["skillgen"]["selection"]["nn_k"] == 5 and shown["skillgen"]["target_demos"] == 7


def test_demos_leaves_room_for_attempts_that_fail(twin):
    def cap(*arguments):
        return yaml.safe_load(twin("config", "skillgen", *arguments)[1])["skillgen"]["max_attempts"]

    per_demo = yaml.safe_load(twin("config", "skillgen")[1])["skillgen"]["attempts_per_demo"]
    assert cap("--demos", "1000") == 1000 * per_demo and cap("--demos", "1") == cap()
    assert cap("--demos", "1000", "--set", "skillgen.max_attempts=7") == 7
    assert cap("--demos", "9000", "--preset", "full") == 1200  # exactly this many attempts, whatever comes out


def test_test_hands_everything_to_pytest(twin, monkeypatch):
    started, here = [], []
    monkeypatch.setattr("os.execv", lambda path, arguments: started.append(arguments))
    monkeypatch.setattr("os.chdir", here.append)
    twin("test", "tests/cli", "-k", "no such", "--co", "--maxfail=1")
    assert started == [[sys.executable, "-m", "pytest", "tests/cli", "-k", "no such", "--co", "--maxfail=1"]]
    assert (Path(here[0]) / "pyproject.toml").exists()


# --- progress


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_plain_progress_is_sparse_and_counts_only_new_work():
    lines, clock = [], Clock()
    reporter = PlainReporter(lines.append, clock)
    reporter.start("generate", 10, done=4)
    for _ in range(6):
        clock.now += 4
        reporter.advance(note="2 failed")
    assert lines == [
        "generate: 10 demos, 4 already there",
        "generate: 7/10 demos, 15.0 demos/min, 0:12 left, 2 failed",
        "generate: 10/10 demos, 15.0 demos/min in 0:24, 2 failed",
    ]


@pytest.mark.parametrize(
    ("per_second", "text"),
    [(0.2, "12.0 demos/min"), (2.34, "2.3 demos/s"), (123.4, "123 demos/s"), (0, "0.0 demos/min")],
)
def test_rate(per_second, text):
    assert format_rate(per_second, "demos") == text


def test_duration():
    assert [format_duration(s) for s in (0, 59.6, 3600)] == ["0:00", "1:00", "1:00:00"]


def test_terminal_progress_shows_count_and_restarts_a_stage():
    text = io.StringIO()
    with make_reporter(Console(file=text, force_terminal=True, width=120)) as reporter:
        reporter.start("generate", 3, done=1, unit="attempts")
        reporter.advance(2, note="1 failed")
        reporter.message("[4] is not markup")
        reporter.start("generate", 5, done=3, unit="attempts")
    shown = text.getvalue()
    assert "3/5" in shown and "attempts" in shown and "[4] is not markup" in shown


def test_result_line_shows_short_values_only():
    text = io.StringIO()
    summary = {
        "exhausted": True,
        "rate": 0.123456,
        "causes": {"slipped": 2},
        "long": [1, 2, 3],
        "nested": {"a": {"b": 1}},
    }
    print_result(Console(file=text, width=200), StageResult("generate", 12, summary))
    assert text.getvalue() == "generate: 12 in the folder; exhausted yes; rate 0.1235; causes (slipped 2)\n"
