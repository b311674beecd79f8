import fcntl
import json
import signal
import time

import pytest

from services.control.errors import Conflict, Invalid, NotFound
from services.control.runs import Runs
from so101.errors import ConfigError
from tests.services.control.conftest import command_line_run

REQUEST = {"name": None, "task": None, "preset": None, "seeds": None, "demos": 2, "workers": None, "overrides": []}


def request(**values):
    return {**REQUEST, **values}


@pytest.fixture
def runs(make_config, launcher):
    runs = Runs(make_config("deploy.control_plane.runs.max_crashes=2").deploy.control_plane, launcher)
    yield runs
    runs.close()


def again(runs, launcher) -> Runs:
    """Another control plane after a kill of the first."""
    return Runs(runs.settings, launcher)


def test_a_run_goes_from_start_to_finish(runs, launcher):
    run = runs.start(request(name="one"))
    assert (run.id, run.state, run.actions) == ("one", "running", ["stop"])
    launcher.end(runs._state("one"), 0)
    run = runs.get("one")
    assert (run.state, run.actions, run.error) == ("finished", ["delete"], "")
    with pytest.raises(Conflict, match="one is finished; it can be resumed when it is stopped or failed"):
        runs.resume("one")


def test_one_at_a_time_in_the_order_they_came(runs, launcher):
    for name in "abc":
        runs.start(request(name=name))
    assert [(run.id, run.state) for run in runs.list()] == [("a", "running"), ("b", "queued"), ("c", "queued")]
    launcher.end(runs._state("a"), 0)
    runs.step()
    assert [run.state for run in map(runs.get, "abc")] == ["finished", "running", "queued"]


def test_a_stopped_run_is_told_and_resumes(runs, launcher):
    runs.start(request(name="a"))
    assert runs.stop("a").state == "stopping"
    assert launcher.signals == [("a", signal.SIGTERM)]
    launcher.end(runs._state("a"), 128 + signal.SIGTERM, "stopped")
    assert runs.get("a").state == "stopped"
    runs.step()
    assert runs.get("a").state == "stopped"
    assert runs.resume("a").state == "running"
    assert launcher.jobs["a"]["start"] == 2


def test_a_queued_run_that_is_stopped_never_starts(runs, launcher):
    runs.start(request(name="a"))
    runs.start(request(name="b"))
    assert runs.stop("b").state == "stopped"
    launcher.end(runs._state("a"), 0)
    runs.step()
    assert "b" not in launcher.jobs


def test_a_run_whose_process_died_goes_on_and_is_given_up_at_last(runs, launcher):
    runs.start(request(name="a"))
    for crashes in (1, 2):
        launcher.die("a")
        assert runs.get("a").state == "queued"
        runs.step()  # sees it
        runs.step()  # starts it
        assert (runs.get("a").state, runs.get("a").crashes) == ("running", crashes)
    launcher.die("a")
    runs.step()
    run = runs.get("a")
    assert run.state == "failed" and "died 3 times" in run.error
    assert runs.resume("a").state == "running"
    assert runs.get("a").crashes == 0


def test_what_does_not_stop_is_killed_and_stays_stopped(runs, launcher, monkeypatch):
    runs.start(request(name="a"))
    runs.stop("a")
    later = time.time() + runs.settings.runs.stop_grace_s + 1
    monkeypatch.setattr(time, "time", lambda: later)
    runs.step()
    assert ("a", signal.SIGKILL) in launcher.signals
    launcher.die("a")
    runs.step()
    assert runs.get("a").state == "stopped" and launcher.jobs["a"]["start"] == 1


def test_a_second_control_plane_finds_everything_as_it_was(runs, launcher):
    for name in "abc":
        runs.start(request(name=name))
    launcher.end(runs._state("a"), 3, "no such recording")
    second = again(runs, launcher)
    try:
        assert [second.get(name).state for name in "abc"] == ["failed", "queued", "queued"]
        assert second.get("a").error == "no such recording"
        second.step()
        assert second.get("b").state == "running"
        third = again(runs, launcher)  # a kill between two steps
        third.step()
        assert third.get("b").state == "running" and launcher.jobs["b"]["start"] == 1
        third.close()
    finally:
        second.close()


def test_a_kill_between_noting_and_starting_costs_no_run(runs, launcher):
    runs.start(request(name="a"))
    launcher.end(runs._state("a"), 1, "")
    runs._store.queue("a", time.time())
    runs._store.mark_started("a")  # and then the control plane is killed
    second = again(runs, launcher)
    second.step()
    second.step()
    assert second.get("a").state == "running"
    second.close()


def test_an_outcome_of_an_earlier_process_does_not_count(runs, launcher):
    runs.start(request(name="a"))
    launcher.end(runs._state("a"), 0)
    outcome = json.loads(runs._state("a").outcome.read_text())
    runs._state("a").outcome.write_text(json.dumps({**outcome, "start": 7}))
    assert runs.get("a").state == "queued"


def test_at_the_orderly_end_runs_stop_and_go_on_with_the_next(runs, launcher):
    runs.start(request(name="a"))
    ended = []

    def signal_and_end(state, number):
        ended.append(number)
        launcher.end(state, 128 + number)

    launcher.signal = signal_and_end
    runs.pause()
    assert ended == [signal.SIGTERM] and not launcher.working
    second = again(runs, launcher)
    second.step()
    assert second.get("a").state == "running" and second.get("a").crashes == 0
    second.close()


def test_deleting_moves_to_the_trash_and_frees_the_name(runs, launcher):
    runs.start(request(name="a"))
    with pytest.raises(Conflict, match="a is running; it can be deleted when it is neither"):
        runs.delete("a")
    command_line_run(runs.folder / "a")
    (runs.folder / "a" / "keep.txt").write_text("x")
    launcher.end(runs._state("a"), 0)
    target = runs.delete("a")
    assert (target / "keep.txt").read_text() == "x" and target.parent == runs.folder / ".trash"
    with pytest.raises(NotFound):
        runs.get("a")
    assert runs.start(request(name="a")).state == "running"


def test_a_run_of_the_command_line_is_shown_and_left_alone(runs):
    folder = command_line_run(runs.folder / "mine", **{"task.name": "cube_in_box", "skillgen.target_demos": 7})
    run = runs.get("mine")
    assert (run.state, run.owner, run.task, run.demos) == ("idle", "command line", "cube_in_box", 7)
    with pytest.raises(Conflict, match="run of the command line"):
        runs.resume("mine")
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert runs.get("mine").state == "running"
        with pytest.raises(Conflict):
            runs.delete("mine")
    runs.delete("mine")
    assert not folder.exists()


@pytest.mark.parametrize("name", ["..", ".", "../x", "/etc", "a/b", ".hidden", "", "x" * 65, "a\0b", "ü", "a b", "-rf"])
def test_names_that_are_no_folder_below_are_refused(runs, name):
    with pytest.raises(Invalid, match="letters, digits"):
        runs.start(request(name=name))
    with pytest.raises(NotFound):
        runs.get(name)


def test_links_and_strangers_folders_are_no_runs(runs, tmp_path):
    outside = command_line_run(tmp_path / "outside")
    runs.folder.mkdir()
    (runs.folder / "link").symlink_to(outside)
    (runs.folder / "photos").mkdir()
    assert runs.list() == []
    with pytest.raises(NotFound, match="there is no run 'link'"):
        runs.delete("link")


def test_a_taken_name_is_refused(runs, launcher):
    runs.start(request(name="a"))
    with pytest.raises(Conflict, match="there is a run 'a' already"):
        runs.start(request(name="a"))
    command_line_run(runs.folder / "b")
    with pytest.raises(Conflict, match="exists already; resume that run, delete it, or choose another name"):
        runs.start(request(name="b"))


def test_names_that_are_made_up_differ(runs):
    names = {runs.start(request(task="cube_in_box")).id for _ in range(3)}
    assert len(names) == 3 and all(name.startswith("cube_in_box-") for name in names)


def test_the_queue_is_bounded(make_config, launcher):
    runs = Runs(make_config("deploy.control_plane.runs.max_queued=2").deploy.control_plane, launcher)
    for _ in range(3):
        runs.start(request())
    with pytest.raises(Conflict, match="2 runs wait already"):
        runs.start(request())
    runs.close()


def test_wrong_settings_have_the_words_of_the_command_line(runs):
    with pytest.raises(ConfigError, match=r"--set skilgen.nn_k=3: unknown section 'skilgen'.*did you mean 'skillgen'"):
        runs.start(request(overrides=["skilgen.nn_k=3"]))
    with pytest.raises(ConfigError, match="unknown preset 'smal'"):
        runs.start(request(preset="smal"))
    assert runs.list() == []


def test_seeds_come_from_the_folders_for_them_alone(runs, launcher, tmp_path):
    (tmp_path / "recordings").mkdir()
    (tmp_path / "recordings" / "demo.csv").write_text("t\n")
    (tmp_path / "secret.csv").write_text("t\n")
    runs.start(request(name="a", seeds="recordings/demo.csv"))
    assert launcher.jobs["a"]["seeds"] == str(tmp_path / "recordings" / "demo.csv")
    (tmp_path / "recordings" / "link").symlink_to(tmp_path / "secret.csv")
    for path in ("secret.csv", "recordings/../secret.csv", "/etc/passwd", "recordings/link", "a\0b"):
        with pytest.raises(Invalid, match="recordings are taken from below datasets/, recordings/"):
            runs.start(request(seeds=path))
    for path in ("recordings/none.csv", "recordings/" + "x" * 5000):
        with pytest.raises(Invalid, match="no such file"):
            runs.start(request(seeds=path))


def test_the_executor_is_chosen_when_the_run_starts(make_config, launcher):
    runs = Runs(
        make_config().deploy.control_plane, launcher, executor=lambda: "network", more_overrides=lambda: ["a.b=1"]
    )
    runs.start(request(name="a", overrides=["skillgen.selection.nn_k=2"]))
    assert launcher.jobs["a"]["overrides"] == ["a.b=1", "deploy.work.executor=network", "skillgen.selection.nn_k=2"]
    runs.close()


def test_a_file_that_is_no_store_is_named(make_config, tmp_path):
    settings = make_config().deploy.control_plane
    (tmp_path / ".control").mkdir()
    (tmp_path / ".control" / "runs.sqlite3").write_bytes(b"not a database" * 100)
    with pytest.raises(Exception, match="not a run store of this program"):
        Runs(settings)
