import sqlite3

import pytest

from services.control.store import RunStore
from so101.errors import RunFolderError


def test_what_was_stored_is_there_when_it_is_opened_again(tmp_path):
    store = RunStore(tmp_path / "s" / "runs.sqlite3")
    store.add("a", {"demos": 3, "name": "ü\"'"}, 10.0)
    store.mark_started("a")
    store.close()
    store = RunStore(tmp_path / "s" / "runs.sqlite3")
    run = store.get("a")
    assert (run.request, run.created_s, run.wanted, run.queued_s, run.starts) == (
        {"demos": 3, "name": "ü\"'"},
        10.0,
        "run",
        None,
        1,
    )
    assert store.get("b") is None


def test_those_that_wait_come_first_and_in_order(tmp_path):
    store = RunStore(tmp_path / "runs.sqlite3")
    for i, name in enumerate("abcd"):
        store.add(name, {}, float(i))
    store.mark_started("a")
    store.mark_started("c")
    store.queue_again("a", 9.0)
    assert [run.id for run in store.all()] == ["b", "d", "a", "c"]


def test_an_id_is_taken_once(tmp_path):
    store = RunStore(tmp_path / "runs.sqlite3")
    store.add("a", {}, 1.0)
    with pytest.raises(sqlite3.IntegrityError):
        store.add("a", {}, 2.0)


def test_asking_again_forgets_crashes_and_the_wish_to_stop(tmp_path):
    store = RunStore(tmp_path / "runs.sqlite3")
    store.add("a", {}, 1.0)
    store.queue_again("a", 2.0)
    store.mark_stopping("a", 3.0)
    assert (store.get("a").crashes, store.get("a").wanted, store.get("a").queued_s) == (1, "stop", None)
    store.queue("a", 4.0)
    run = store.get("a")
    assert (run.crashes, run.wanted, run.queued_s, run.stop_s) == (0, "run", 4.0, None)


def test_a_store_of_a_newer_program_is_left_alone(tmp_path):
    path = tmp_path / "runs.sqlite3"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=9")
    connection.close()
    with pytest.raises(RunFolderError, match="version 9, this program reads 1"):
        RunStore(path)


def scribbled(path):
    store = RunStore(path)
    for i in range(50):
        store.add(f"run{i}", {"name": "x" * 2000}, 1.0)
    store.close()
    content = path.read_bytes()
    path.write_bytes(content[:6000] + b"\xff" * 14_000 + content[20_000:])


def of_another(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE runs (x)")


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda path: path.write_bytes(b"no database" * 1000), "move it away"),
        (scribbled, "move it away"),
        (of_another, "its columns are x"),
        (lambda path: path.mkdir(), "cannot be opened"),
    ],
)
def test_a_store_that_cannot_be_used_is_told_at_the_start(spoil, text, tmp_path):
    spoil(tmp_path / "runs.sqlite3")
    with pytest.raises(RunFolderError, match=text):
        RunStore(tmp_path / "runs.sqlite3")


def test_a_store_that_another_program_holds_is_not_called_damaged(tmp_path, monkeypatch):
    path, connect = tmp_path / "runs.sqlite3", sqlite3.connect
    RunStore(path).close()
    other = connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: connect(*args, **{**options, "timeout": 0.1}))
    with pytest.raises(RunFolderError, match="cannot be used now .*locked"):
        RunStore(path)
    other.close()
