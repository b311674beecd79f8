"""`./twin demo` as a user meets it."""

from __future__ import annotations

import json

import pytest

from so101.cli import app as program
from so101.datasets.demo_file import read_demo, write_demo
from tests.datasets.demos import make_episode, make_header, mrl_bytes


@pytest.fixture
def twin(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments):
        code = program.main(["demo", *map(str, arguments)])
        return (code, *capsys.readouterr())

    return call


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "lift.demo"
    write_demo(path, make_header(), [make_episode(7, 3), make_episode(8, 5, success=False)])
    return path


def test_info_tells_a_file_and_its_episodes(twin, path, tmp_path):
    code, out, _ = twin("info", path, "--episodes", "--json", tmp_path / "facts.json")
    assert code == 0 and "so101_tower_lift_brick at 31.25 Hz, rows of 3 words and 2 actions" in out
    assert "2 episodes, 1 successful, 8 rows (3 to 5 an episode), 3 intervened" in out and "who: täst" in out
    (facts,) = json.loads((tmp_path / "facts.json").read_text())
    assert (facts["rows"], facts["intervened_rows"], facts["lost"]) == (8, 3, "")


def test_a_damaged_file_is_told_recovered_and_joined(twin, path, tmp_path):
    whole, damaged, out = path.read_bytes(), tmp_path / "damaged.demo", tmp_path / "whole.demo"
    damaged.write_bytes(whole[:-30])
    code, text, errors = twin("info", damaged)
    assert code == 3 and "1 episodes" in text and "episode 1 is cut (of its 5 rows the first 4 are there" in errors
    code, text, _ = twin("recover", damaged, "--out", out)
    assert code == 0 and "1 episodes, 3 rows" in text and "lost: episode 1 is cut" in text
    assert len(read_demo(out).episodes) == 1
    assert twin("merge", out, path, "--out", tmp_path / "both.demo")[1].endswith("both.demo: 3 episodes, 11 rows\n")
    code, _, errors = twin("merge", damaged, path, "--out", tmp_path / "no.demo")
    assert code == 3 and "`./twin demo recover` writes what is whole (1 episodes)" in errors
    assert "nothing is lost" in twin("recover", path, "--out", tmp_path / "no.demo")[1]


def test_an_older_file_is_told_too(twin, tmp_path):
    (tmp_path / "old.demo").write_bytes(mrl_bytes([make_episode(1, 5)]))
    code, out, _ = twin("info", tmp_path / "old.demo")
    assert code == 0 and "a task that it does not name (MRLDEMO1)" in out and "1 episodes" in out


def test_mistakes_end_without_traceback(twin, path, tmp_path):
    assert twin("info", tmp_path / "missing.demo")[0] == 3
    code, _, errors = twin("convert", path, "--out", path)
    assert code == 3 and "exists" in errors and "Traceback" not in errors
    assert twin("convert", path)[0] == 2
