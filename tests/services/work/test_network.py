"""Runs, broker and workers together over real sockets: every job once, whoever comes and goes."""

from __future__ import annotations

import threading
import time
from itertools import count, islice

import numpy as np
import pytest
import zmq

from proto.codec import encode
from proto.errors import RemoteError
from proto.messages.work import File, JoinWork, PutResult, Result, SubmitJob, TakeJob, WorkStatus, pack
from services.wire import make_client
from services.work import worker as worker_module
from services.work.errors import WorkError
from services.work.network_executor import NetworkExecutor
from so101.errors import DataError, SimulationError
from so101.pipeline.build import build_id
from so101.pipeline.jobs import Job

from . import toy
from .toy import check_files, toy_context


def run(site, context, jobs, say=lambda text: None, config=None):
    return NetworkExecutor(config or site.config, 1).map_unordered(context, jobs, say)


def wait_for(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.01)


@pytest.mark.parametrize("workers", [1, 3])
def test_every_job_is_done_once_and_its_files_are_there(site, tmp_path, workers):
    broker = site.broker()
    for _ in range(workers):
        site.worker()
    context, jobs = toy_context(tmp_path / "run", range(30, 70))
    seen = []
    for index, summary in run(site, context, jobs):
        assert (context.folder / "out" / f"demo_{index:06d}.txt").read_text() == summary["text"]
        seen.append(index)
    assert sorted(seen) == list(range(30, 70))
    check_files(context, seen)
    assert not (context.folder / "in" / "demo").exists()
    assert broker.status().batches == () and broker.status().late == 0
    assert sum(worker.done for worker in broker.status().workers) == 40


def test_no_jobs_ask_nobody(site, tmp_path):
    context, jobs = toy_context(tmp_path / "run", [])
    assert list(run(site, context, jobs)) == []


def test_jobs_are_read_lazily_and_leaving_early_closes_the_batch(site, tmp_path):
    broker = site.broker()
    site.worker()
    context, _ = toy_context(tmp_path / "run", range(100, 140))
    taken = []
    jobs = (taken.append(i) or Job(i, (f"in/{i}",)) for i in count(100))
    results = run(site, context, jobs)
    assert len(list(islice(results, 5))) == 5
    assert len(taken) <= 5 + site.config.deploy.work.jobs_per_worker
    results.close()
    assert broker.status().batches == ()


def test_a_broker_that_is_replaced_costs_nothing(site, tmp_path):
    broker = site.broker()
    for _ in range(2):
        site.worker()
    context, jobs = toy_context(tmp_path / "run", range(100, 160))
    seen = []
    for index, _ in run(site, context, jobs):
        seen.append(index)
        if len(seen) in (10, 30):
            broker.close()
            broker = site.broker()
    assert sorted(seen) == list(range(100, 160))
    check_files(context, seen)


def test_a_worker_that_vanishes_with_a_job_is_replaced(site, tmp_path):
    """It never answers again, as after kill -9."""
    broker = site.broker()
    context, jobs = toy_context(tmp_path / "run", range(5))
    seen = []
    thread = threading.Thread(target=lambda: seen.extend(index for index, _ in run(site, context, jobs)))
    with make_client(site.config, "work") as client:
        client.request(JoinWork(worker="gone", kinds=("toy",), host="h", pid=1, build=build_id()))
        thread.start()
        wait_for(lambda: client.request(TakeJob(worker="gone")).order is not None)
    site.worker()
    thread.join(120)
    assert sorted(seen) == list(range(5))
    check_files(context, seen)
    assert [worker.done for worker in broker.status().workers] == [5]


def test_two_runs_share_the_workers(site, tmp_path):
    site.broker()
    site.worker()
    contexts = [toy_context(tmp_path / name, range(100, 120)) for name in ("one", "two")]
    order = []

    def go(number):
        for _ in run(site, *contexts[number]):
            order.append(number)

    threads = [threading.Thread(target=go, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert order.count(0) == order.count(1) == 20
    for context, jobs in contexts:
        check_files(context, [job.index for job in jobs])


def test_the_error_of_a_job_comes_back_as_it_was(site, tmp_path):
    site.broker()
    site.worker()
    context, jobs = toy_context(tmp_path / "run", [13])
    with pytest.raises(DataError, match=r"^in/13: thirteen is bad") as caught:
        list(run(site, context, jobs))
    assert "in run" in str(caught.value.__cause__) and "toy.py" in str(caught.value.__cause__)


def test_files_that_are_none_of_the_jobs_are_refused(site, tmp_path):
    site.broker("deploy.work.lease_s=100")
    context, jobs = toy_context(tmp_path / "run", [1])
    errors = []

    def go():
        with pytest.raises(SimulationError) as caught:
            list(run(site, context, jobs))
        errors.append(str(caught.value))

    thread = threading.Thread(target=go)
    with make_client(site.config, "work") as client:
        client.request(JoinWork(worker="evil", kinds=("toy",), host="h", pid=1, build=build_id()))
        thread.start()
        orders = []
        wait_for(lambda: orders.append(client.request(TakeJob(worker="evil")).order) or orders[-1])
        escape = Result(1, "{}", (File("out/../../../escaped", pack(b"x")),))
        client.request(PutResult(worker="evil", batch=orders[-1].batch, result=escape))
    thread.join(120)
    assert "a worker sent 'out/../../../escaped' for toy 1, which makes out/{demo}.txt" in errors[0]
    assert not list(tmp_path.rglob("escaped"))


def test_without_workers_a_run_says_so_and_gives_up_in_the_end(site, tmp_path, monkeypatch):
    monkeypatch.setattr("services.work.network_executor._TELL_AFTER_S", 0.1)
    site.broker()
    context, jobs = toy_context(tmp_path / "run", [1])
    said = []
    config = site.with_settings("deploy.work.patience_s=0.5")
    with pytest.raises(WorkError, match=r"no worker for toy jobs is there.*Given up after \d+ s .*resumes"):
        list(run(site, context, jobs, said.append, config))
    assert said == ["no worker for toy jobs is there; waiting (`./twin serve generator` starts one)"]


def test_without_a_broker_a_run_says_so_and_gives_up_in_the_end(site, tmp_path):
    context, jobs = toy_context(tmp_path / "run", [1])
    config = site.with_settings("deploy.work.patience_s=0.6", "deploy.work.request_timeout_s=0.2")
    with pytest.raises(WorkError, match="the broker at ipc://.*does not answer.*`./twin up` starts one"):
        list(run(site, context, jobs, config=config))


def test_a_worker_of_another_release_is_refused(site, monkeypatch):
    site.broker()
    monkeypatch.setattr(worker_module, "build_id", lambda: "so101-twin 9; other")
    worker = worker_module.Worker(site.config, ("toy",), site._tmp, worker_module.StopFlag())
    with pytest.raises(WorkError, match="runs another program than the broker, so its files would differ. There: "):
        worker.run()


def test_a_worker_told_to_stop_finishes_its_job(site, tmp_path):
    broker = site.broker()
    worker, stop, thread = site.worker()
    context, jobs = toy_context(tmp_path / "run", [99])
    seen = []
    runner = threading.Thread(target=lambda: seen.extend(run(site, context, jobs)))
    runner.start()
    assert toy.began.wait(120)
    stop.set()
    toy.release.set()
    thread.join(120)
    runner.join(120)
    assert [index for index, _ in seen] == [99] and worker.done == 1
    assert broker.status().workers == ()


def test_a_job_too_long_to_wait_for_is_given_back(site, tmp_path):
    broker = site.broker()
    gone = threading.Event()
    config = site.with_settings("deploy.work.drain_s=0.1")
    _, stop, _ = site.worker(config=config, abandon=gone.set)
    context, jobs = toy_context(tmp_path / "run", [99])
    runner = threading.Thread(target=lambda: list(run(site, context, jobs)))
    runner.start()
    assert toy.began.wait(120)
    stop.set()
    assert gone.wait(120)  # a real worker process ends here
    assert broker.status().workers == ()
    (batch,) = broker.status().batches
    assert (batch.queued, batch.running, batch.lost) == (1, 0, 0)
    site.worker()
    toy.release.set()
    runner.join(120)
    check_files(context, [99])


def test_messages_with_a_good_form_and_a_bad_meaning_are_answered_with_errors(site):
    site.broker()
    with make_client(site.config, "work") as client:
        for message, code in [
            (TakeJob(worker="nobody"), "unknown_worker"),
            (SubmitJob(batch="none", index=1, files=()), "unknown_batch"),
            (SubmitJob(batch="none", index=1, files=(File("x", np.zeros((2, 2))),)), "bad_message"),
        ]:
            with pytest.raises(RemoteError) as caught:
                client.request(message)
            assert caught.value.code == code
        assert client.request(WorkStatus()).batches == ()


def test_frames_that_are_no_messages_do_not_disturb(site, tmp_path):
    site.broker()
    site.worker()
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.linger = 0
    socket.connect(site.config.deploy.sockets.work.connect)
    for frames in ([b""], [b"x" * 8, b"junk"], [b"x" * 8, *encode(TakeJob(worker="w"))[:1]], [b""] * 80):
        socket.send_multipart(frames)
    context, jobs = toy_context(tmp_path / "run", range(100, 105))
    assert len(list(run(site, context, jobs))) == 5
    socket.close()
