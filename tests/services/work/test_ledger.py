"""Leases: every job is done once for its run, whoever vanishes, and no peer can spoil another's work."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from proto.errors import RemoteError
from proto.messages.work import File, JoinWork, OpenBatch, PartRef, PutResult, Result, pack
from services.work.ledger import Ledger
from so101.config import load_config

SETTINGS = load_config().deploy.work
CONTENT = b"settings"
PARTS = (PartRef("", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT)),)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def make(**changes) -> tuple[Ledger, Clock]:
    clock = Clock()
    return Ledger(SETTINGS.model_copy(update=changes), "ours 1; python 3", clock), clock


def opened(batch="b", kind="attempt", run="run", build="ours 1; python 3", parts=PARTS) -> OpenBatch:
    return OpenBatch(batch=batch, run=run, kind=kind, parts=parts, build=build)


def joined(worker="w", kinds=("attempt",), build="ours 1; python 3") -> JoinWork:
    return JoinWork(worker=worker, kinds=kinds, host="here", pid=1, build=build)


def begin(ledger: Ledger, batch="b", jobs=0, **options) -> None:
    ledger.open_batch(opened(batch, **options))
    ledger.parts.put(PARTS[0].digest, 0, memoryview(CONTENT))
    for index in range(jobs):
        ledger.submit(batch, index, ())


def result(index, worker="w", batch="b", summary="{}") -> PutResult:
    return PutResult(worker=worker, batch=batch, result=Result(index, summary, ()))


# --- laws


class Work(RuleBasedStateMachine):
    """Runs and workers that do anything at any time, as they do when messages are lost and processes die."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger, self.clock = make(max_lost_workers=10_000)
        self.open: dict[str, set[int]] = {}  # what each run waits for
        self.received: dict[str, list[int]] = {}
        self.orders: list[tuple[str, str, int]] = []  # worker, batch, index: ever given out

    batches, workers = st.sampled_from("ab"), st.sampled_from("uvw")

    @rule(batch=batches, index=st.integers(0, 5))
    def submit(self, batch, index):
        if index in self.received.get(batch, []):
            return
        if batch not in self.open:
            begin(self.ledger, batch)
            self.open[batch], self.received[batch] = set(), []
        try:
            self.ledger.submit(batch, index, ())
        except RemoteError as error:
            assert error.code == "unknown_batch"
            begin(self.ledger, batch)
            self.ledger.submit(batch, index, ())
        self.open[batch].add(index)

    @rule(batch=batches)
    def fetch(self, batch):
        if batch not in self.open:
            return
        try:
            state = self.ledger.fetch(batch, tuple(self.received[batch][-1:]))
        except RemoteError:
            return
        if state.result is not None:
            assert state.result.summary == f'"{batch} {state.result.index}"'
            if state.result.index in self.open[batch]:
                self.open[batch].remove(state.result.index)
                self.received[batch].append(state.result.index)

    @rule(batch=batches)
    def close(self, batch):
        self.ledger.close_batch(batch)
        self.open.pop(batch, None)
        self.received.pop(batch, None)

    @rule(worker=workers)
    def take(self, worker):
        self.ledger.join(joined(worker))
        order = self.ledger.take(worker)
        if order is not None:
            self.orders.append((worker, order.batch, order.index))

    @rule(worker=workers, choice=st.integers(0, 1000), other=workers)
    def finish(self, worker, choice, other):
        """Now and then for a job that was never given to it."""
        self.ledger.join(joined(worker))
        if self.orders:
            _, batch, index = self.orders[choice % len(self.orders)]
            self.ledger.finish(result(index, worker, batch, f'"{batch} {index}"'))

    @rule(worker=workers)
    def leave(self, worker):
        self.ledger.leave(worker)

    @rule(seconds=st.sampled_from([0.1, SETTINGS.lease_s + 1]))
    def time_passes(self, seconds):
        self.clock.now += seconds
        self.ledger.expire()

    @invariant()
    def every_open_job_is_queued_or_leased_or_done(self):
        report = self.ledger.report()
        for batch in report.batches:
            state = self.ledger._batches[batch.batch]
            held = [w.job for w in self.ledger._workers.values() if w.job and w.job.batch is state]
            assert len(set(held)) == len(held) == batch.running
            assert {job.index for job in [*state.queue, *held]} == set(state.jobs)
            assert not set(state.jobs) & set(state.results)

    @invariant()
    def nothing_is_received_twice(self):
        assert all(len(set(received)) == len(received) for received in self.received.values())

    @invariant()
    def nothing_is_held_for_nobody(self):
        if not self.ledger.report().batches:
            assert self.ledger._held == 0 and self.ledger.parts.declared_bytes == 0


TestWork = Work.TestCase
TestWork.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


# --- worked cases


def test_a_silent_workers_job_goes_to_another_and_its_late_result_counts_once():
    ledger, clock = make()
    begin(ledger, jobs=1)
    ledger.join(joined("slow"))
    assert ledger.take("slow").index == 0
    clock.now += SETTINGS.lease_s + 0.1
    ledger.fetch("b", ())
    ledger.expire()
    ledger.join(joined("quick"))
    assert ledger.take("quick").index == 0
    ledger.join(joined("slow"))
    ledger.finish(result(0, "slow"))  # it was only slow: its bytes are as good
    assert ledger.take("quick") is None
    ledger.finish(result(0, "quick"))
    assert ledger.report().late == 1
    assert ledger.fetch("b", ()).result.index == 0
    assert ledger.fetch("b", (0,)).result is None


def test_an_order_is_given_again_when_its_worker_did_not_get_the_answer():
    ledger, _ = make()
    begin(ledger, jobs=2)
    ledger.join(joined())
    assert ledger.take("w").index == ledger.take("w").index == 0


def test_a_result_for_a_job_that_was_never_given_is_ignored():
    ledger, _ = make()
    begin(ledger, jobs=1)
    ledger.join(joined("liar"))
    ledger.finish(result(0, "liar"))
    ledger.finish(result(99, "liar"))
    ledger.finish(result(0, "liar", batch="nobody"))
    assert ledger.report().late == 3 and ledger.fetch("b", ()).result is None


def test_a_job_that_kills_its_workers_ends_with_an_error():
    ledger, clock = make(max_lost_workers=2)
    begin(ledger, jobs=1)
    for worker in ("w1", "w2"):
        ledger.join(joined(worker))
        assert ledger.take(worker).index == 0
        clock.now += SETTINGS.lease_s + 0.1
        ledger.fetch("b", ())
        ledger.expire()
    failed = ledger.fetch("b", ()).result
    assert failed.index == 0 and failed.error.error == "SimulationError"
    assert "2 workers vanished while they worked on attempt 0 of run" in failed.error.text
    assert "max_lost_workers" in failed.error.text and "--workers 1" in failed.error.text
    assert ledger.fetch("b", (0,)).open == ()


def test_a_job_that_lost_its_worker_waits_behind_the_others():
    ledger, clock = make()
    begin(ledger, jobs=2)
    ledger.join(joined("w1"))
    assert ledger.take("w1").index == 0
    clock.now += SETTINGS.lease_s + 0.1
    ledger.fetch("b", ())
    ledger.expire()
    ledger.join(joined("w2"))
    assert ledger.take("w2").index == 1


def test_a_worker_that_leaves_in_order_costs_nothing():
    ledger, _ = make(max_lost_workers=1)
    begin(ledger, jobs=1)
    ledger.join(joined("w1"))
    ledger.take("w1")
    ledger.leave("w1")
    ledger.join(joined("w2"))
    assert ledger.take("w2").index == 0


def test_a_worker_that_beats_and_never_ends_its_job_is_given_up():
    ledger, clock = make()
    begin(ledger, jobs=1)
    ledger.join(joined("stuck"))
    ledger.take("stuck")
    for _ in range(int(SETTINGS.job_limit_s) + 2):
        clock.now += 1.0
        ledger.fetch("b", ())
        if clock.now <= SETTINGS.job_limit_s:
            ledger.beat("stuck")
            ledger.expire()
    ledger.expire()
    with pytest.raises(RemoteError, match=r"no worker stuck is here; join \(again\)"):
        ledger.beat("stuck")


def test_runs_take_turns():
    ledger, _ = make()
    begin(ledger, "big", jobs=50)
    begin(ledger, "small", jobs=3)
    ledger.join(joined())
    served = []
    for _ in range(8):
        order = ledger.take("w")
        served.append(order.batch)
        ledger.finish(result(order.index, batch=order.batch))
    assert served[:6].count("small") == 3


def test_workers_get_the_kinds_they_take_and_no_job_before_what_it_shares_is_there():
    ledger, _ = make()
    ledger.open_batch(opened("b", kind="render"))
    ledger.submit("b", 0, ())
    ledger.join(joined("generator"))
    ledger.join(joined("renderer", kinds=("render",)))
    assert ledger.state("b").workers == 1
    assert ledger.take("renderer") is None
    ledger.parts.put(PARTS[0].digest, 0, memoryview(CONTENT))
    assert ledger.take("generator") is None
    assert ledger.take("renderer").kind == "render"


def test_a_run_that_is_gone_leaves_nothing_behind():
    ledger, clock = make()
    begin(ledger)
    ledger.submit("b", 0, (File("x", pack(bytes(1000))),))
    clock.now += SETTINGS.lease_s + 0.1
    ledger.expire()
    with pytest.raises(RemoteError) as caught:
        ledger.fetch("b", ())
    assert caught.value.code == "unknown_batch"
    assert ledger._held == ledger.parts.declared_bytes == 0


def test_another_program_is_refused_with_the_difference():
    ledger, _ = make()
    with pytest.raises(RemoteError) as caught:
        ledger.join(joined(build="theirs 2; python 3"))
    assert caught.value.code == "refused"
    assert "There: theirs 2; here: ours 1. Install the same release" in str(caught.value)
    with pytest.raises(RemoteError, match="run run runs another program"):
        ledger.open_batch(opened(build="theirs 2; python 3"))


@pytest.mark.parametrize("limit", ["max_workers", "max_batches", "max_held_bytes"])
def test_what_exceeds_a_limit_is_refused_by_its_name(limit):
    ledger, _ = make(**{limit: 2 if limit != "max_held_bytes" else 20})
    with pytest.raises(RemoteError, match=rf"deploy\.work\.{limit}") as caught:
        for number in range(3):
            ledger.join(joined(f"w{number}"))
            ledger.open_batch(opened(f"b{number}"))
            ledger.submit(f"b{number}", 0, (File("x", pack(bytes(10))),))
    assert caught.value.code == "full"
