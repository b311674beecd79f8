"""Tracking: what is logged can be read back, after kills and from two processes; a bad store stops nothing."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading

import pytest

from so101.config import load_config
from so101.tracking import MlflowRun, NullRun, open_store, tracked_run

pytest.importorskip("mlflow")
CHILD = """
import sys, time
from so101.config import load_config
from so101.tracking import tracked_run

config = load_config(overrides=[f"training.tracking.store={sys.argv[1]}", "training.tracking.flush_s=0.01"])
with tracked_run(config, kind="train", name="child") as run:
    run.log({"loss": 0.5}, step=1)
    while run.id and run._pending:
        time.sleep(0.01)
    run.id and run.flush()  # ends when what is being written is written
    print(run.id, flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("tracking") / "mlflow"


@pytest.fixture(scope="module")
def config(store):
    """Its store is made once: MLflow takes seconds for that."""
    settings = {"store": store, "system_metrics_s": 0.01}
    return load_config(overrides=[f"training.tracking.{key}={value}" for key, value in settings.items()])


def stored(config, run_id):
    return open_store(config.training.tracking).get_run(run_id)


def history(config, run_id, key):
    return [(m.step, m.value) for m in open_store(config.training.tracking).get_metric_history(run_id, key)]


def test_what_was_logged_is_in_the_store(config, tmp_path):
    from matplotlib.figure import Figure

    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("kept")
    with tracked_run(config, kind="eval", name="one", params={"n": 200, "noise": 0.5}, tags={"seed": 7}) as run:
        run.log({"success": 0.25, "time_s": 9.5}, step=3)
        run.log({"success": float("nan")}, step=4)
        figure = Figure()
        figure.subplots().plot([0, 1])
        run.figure("curve", figure)
        run.artifact(tmp_path / "notes", "words")
        run.artifact(tmp_path / "notes" / "a.txt")
    found = stored(config, run.id)
    assert found.data.params == {"n": "200", "noise": "0.5"} and found.data.tags["seed"] == "7"
    assert found.data.metrics["time_s"] == 9.5 and history(config, run.id, "success")[0] == (3, 0.25)
    assert found.info.run_name == "one" and found.info.status == "FINISHED"
    client = open_store(config.training.tracking)
    assert client.get_experiment(found.info.experiment_id).name == "eval"
    assert [a.path for a in client.list_artifacts(run.id)] == ["a.txt", "figures", "words"]
    assert [a.path for a in client.list_artifacts(run.id, "figures")] == ["figures/curve.png"]


def test_a_block_that_fails_or_is_interrupted_ends_its_run_so(config):
    for error, status in ((ValueError("x"), "FAILED"), (KeyboardInterrupt(), "KILLED")):
        with pytest.raises(type(error)), tracked_run(config, kind="train", name="ends") as run:
            run.log({"loss": 1.0})
            raise error
        assert stored(config, run.id).info.status == status and history(config, run.id, "loss") == [(0, 1.0)]


def test_a_killed_training_goes_on_in_its_run_beside_another_process(config, store):
    with tracked_run(config, kind="train", name="meanwhile") as other:
        child = subprocess.Popen([sys.executable, "-c", CHILD, store, "60"], stdout=subprocess.PIPE, text=True)
        run_id = child.stdout.readline().strip()
        other.log({"loss": 0.25}, step=1)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    assert stored(config, run_id).info.status == "RUNNING" and history(config, other.id, "loss") == [(1, 0.25)]
    with tracked_run(config, kind="train", name="child", params={"lr": 1}, resume_id=run_id) as run:
        run.log({"loss": 0.4}, step=2)
    with tracked_run(config, kind="train", name="child", params={"lr": 2}, resume_id=run_id) as run:
        assert run.id == run_id
    assert history(config, run_id, "loss") == [(1, 0.5), (2, 0.4)]
    data = stored(config, run_id).data
    assert data.params == {"lr": "1"} and data.tags["resumed.lr"] == "2"


def test_several_may_make_the_store_at_once(tmp_path):
    command = [sys.executable, "-c", CHILD, tmp_path / "new", "0"]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    ids = [child.communicate()[0].strip() for child in children]
    assert len(set(ids)) == 2 and "None" not in ids and not any(child.returncode for child in children)


def test_a_run_that_is_gone_is_not_continued(config, caplog):
    with tracked_run(config, kind="train", name="new", resume_id="0" * 32) as run:
        assert run.id not in (None, "0" * 32)
    assert "cannot be continued, a new one begins" in caplog.text


def test_system_metrics_are_sampled_while_the_block_runs(config):
    with tracked_run(config, kind="train", name="sampled") as run, run.system_metrics():
        while not run._pending:
            os.sched_yield()
    metrics = stored(config, run.id).data.metrics
    assert metrics["system/process_memory_mb"] > 10 and 0 <= metrics["system/cpu_pct"] <= 100


class Failing:
    """A client whose disk is full for the first `times` writes."""

    def __init__(self, times):
        self.left, self.tries, self.written = times, 0, []

    def log_batch(self, run_id, metrics=(), **_):
        self.tries += 1
        if self.left:
            self.left -= 1
            raise OSError(28, "No space left on device")
        self.written += [m.step for m in metrics]

    def set_terminated(self, run_id, status):
        pass


def test_a_full_store_costs_one_warning_and_gets_its_metrics_later(config, caplog):
    now = [0.0]
    client = Failing(times=2)
    run = MlflowRun(client, "x", config.training.tracking, clock=lambda: now[0])
    for step in range(100):
        now[0] += 6.0
        run.log({"loss": 0.0}, step=step)
        run.flush()
    run.close("FINISHED")
    assert client.written == list(range(100))
    assert client.tries == 2 + 100 - 2 * 10  # ten flushes of every minute left out, twice
    assert caplog.text.count("No space left") == 1


def test_what_a_full_store_does_not_take_is_dropped_at_a_limit_the_oldest_first(config):
    small = config.training.tracking.model_copy(update={"max_pending": 10})
    client = Failing(times=1)
    run = MlflowRun(client, "x", small)
    for step in range(5):
        run.log({"loss": 0.0}, step=step)
    run.flush()
    for step in range(5, 13):
        run.log({"loss": 0.0}, step=step)
    run.close("FINISHED")
    assert client.written == list(range(3, 13))


def test_many_metrics_are_written_in_few_calls(config):
    client = Failing(times=0)
    run = MlflowRun(client, "x", config.training.tracking)
    for step in range(2500):
        run.log({"loss": 0.0}, step=step)
    assert client.tries == 0
    run.flush()
    assert client.tries == 3 and client.written == list(range(2500))


def test_a_training_does_not_wait_for_a_locked_store(config):
    class Locked(Failing):
        unlocked, asked = threading.Event(), threading.Event()

        def log_batch(self, run_id, metrics=(), **_):
            self.asked.set()
            self.unlocked.wait()
            super().log_batch(run_id, metrics)

    client = Locked(times=0)
    quick = config.training.tracking.model_copy(update={"flush_s": 0.001})
    run = MlflowRun(client, "x", quick).start()
    run.log({"loss": 0.0}, step=0)
    client.asked.wait()
    for step in range(1, 1000):
        run.log({"loss": 0.0}, step=step)
    assert client.written == []
    client.unlocked.set()
    run.close("FINISHED")
    assert client.written == list(range(1000))


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("training.tracking.enabled=false", "tracking.enabled is false"),
        ("training.tracking.store=/dev/null/x", "/dev/null/x cannot be used"),
    ],
)
def test_without_a_store_there_is_a_run_of_the_same_methods(setting, said, caplog):
    with tracked_run(load_config(overrides=[setting]), kind="eval", name="none", params={"a": 1}) as run:
        with run.system_metrics():
            run.log({"loss": 1.0}, step=1)
            run.tags({"a": 1})
            run.figure("x", None)
            run.artifact("nowhere")
        assert type(run) is NullRun and run.id is None
    assert said in caplog.text and "nothing is logged" in caplog.text and len(caplog.records) == 1


def test_without_mlflow_it_says_what_to_install(monkeypatch, caplog):
    caplog.set_level(logging.WARNING)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with tracked_run(load_config(), kind="eval", name="none") as run:
        assert run.id is None
    assert "pip install -e .[training]" in caplog.text
