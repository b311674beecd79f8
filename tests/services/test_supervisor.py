"""Services as plain processes: real ones, each a few lines of Python."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from proto.sockets import Publisher, Server
from services.health import HttpCheck, PingCheck, PublisherCheck, TcpCheck
from services.process import Process, start_mark
from services.supervisor import Spec, Supervisor, SupervisorError
from so101.config import load_config
from tests.ports import free_port

FAST = {"poll_s": 0.02, "restart_first_s": 0.05, "restart_max_s": 0.2, "check_timeout_s": 0.5, "stop_grace_s": 5.0}
SLEEPS = "import time; time.sleep(60)"
NOTES_SIGTERM = (
    "import os, signal, sys, time\n"
    "def end(*_):\n"
    "    with open(sys.argv[1], 'a') as notes:\n"
    "        notes.write(sys.argv[2] + ' ')\n"
    "    sys.exit()\n"
    "signal.signal(signal.SIGTERM, end)\n"
    "print('ready', flush=True)\n"
    "time.sleep(60)\n"
)


def settings(**changes):
    return load_config().deploy.supervisor.model_copy(update={**FAST, **changes})


class LogSays:
    """Well once the log holds a word."""

    def __init__(self, log, word="ready"):
        self.log, self.word = log, word

    def problem(self, timeout_s):
        return None if self.log.exists() and self.word in self.log.read_text() else f"{self.word!r} not said"


@pytest.fixture
def supervise(tmp_path):
    """Makes supervisors of tmp_path/state; all are stopped at the end."""
    made, lines = [], []

    def make(*specs, **changes):
        made.append(Supervisor(specs, tmp_path / "state", settings(**changes), say=lines.append))
        made[-1].lines = lines
        return made[-1]

    yield make
    for supervisor in made:
        supervisor.stop()


def python(name, code, *arguments, **options):
    return Spec(name, (sys.executable, "-c", code, *map(str, arguments)), **options)


def until(condition, what):
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(f"never: {what}")


def pid_of(supervisor, name):
    return {row.name: row.pid for row in supervisor.status()}[name]


def test_starts_in_order_stops_in_reverse(supervise, tmp_path):
    notes = tmp_path / "notes"
    state = tmp_path / "state"
    specs = [
        python(n, NOTES_SIGTERM, notes, n, health=LogSays(state / f"{n}.log")) for n in ("first", "second", "third")
    ]
    supervisor = supervise(*specs)
    supervisor.start()
    assert [line.split()[0] for line in supervisor.lines] == ["first", "second", "third"]
    assert all(row.problem is None and row.pid for row in supervisor.status())
    supervisor.stop()
    assert notes.read_text().split() == ["third", "second", "first"]
    assert all(row.pid is None for row in supervisor.status())
    assert not list(state.glob("*.json"))


def test_the_second_waits_until_the_first_is_well(supervise, tmp_path):
    seen = tmp_path / "seen"
    first = python("first", "import time; time.sleep(0.3); print('ready', flush=True); time.sleep(60)",
                   health=LogSays(tmp_path / "state/first.log"))  # fmt: skip
    code = f"open({str(seen)!r}, 'w').write(open({str(tmp_path / 'state/first.log')!r}).read())\n{SLEEPS}"
    supervise(first, python("second", code)).start()
    until(lambda: seen.exists() and seen.read_text(), "second looked")
    assert "ready" in seen.read_text()


def test_one_that_ends_at_once_stops_all_and_shows_its_log(supervise):
    failing = python("bad", "import sys; print('no such camera'); sys.exit(3)", health=TcpCheck("127.0.0.1", 1))
    supervisor = supervise(python("good", SLEEPS), failing)
    with pytest.raises(SupervisorError, match=r"(?s)bad ended with exit code 3.*no such camera"):
        supervisor.start()
    assert pid_of(supervisor, "good") is None


def test_one_that_is_not_required_does_not_stop_the_others_and_is_tried_again(supervise, tmp_path):
    there = tmp_path / "there"
    code = f"import os, time\nif not os.path.exists({str(there)!r}): raise SystemExit('no arm')\n{SLEEPS}"
    absent = LogSays(tmp_path / "never")
    supervisor = supervise(python("driver", code, health=absent, required=False), python("other", SLEEPS))
    supervisor.start()
    assert any("no arm" in line and "going on without driver" in line for line in supervisor.lines)
    assert pid_of(supervisor, "other")
    there.touch()
    until(lambda: supervisor.look() or pid_of(supervisor, "driver"), "the driver runs")


def test_change_starts_and_stops_only_the_difference(supervise):
    specs = [python(name, SLEEPS) for name in ("a", "b", "c")]
    supervisor = supervise(*specs[:2])
    supervisor.start()
    before = {row.name: row.pid for row in supervisor.status()}
    supervisor.change(specs[1:])
    after = {row.name: row.pid for row in supervisor.status()}
    assert list(after) == ["b", "c"] and after["b"] == before["b"] and after["c"]
    assert start_mark(before["a"]) is None and not (supervisor.state_dir / "a.json").exists()


def test_one_that_is_never_well_names_the_key_and_the_problem(supervise, tmp_path):
    mute = python("mute", SLEEPS, health=LogSays(tmp_path / "never"))
    with pytest.raises(SupervisorError, match=r"(?s)mute was not well after 0.2 s.*start_timeout_s.*not said"):
        supervise(mute, start_timeout_s=0.2).start()


def test_a_program_that_is_not_there(supervise):
    with pytest.raises(SupervisorError, match="none could not be started: /no/such: No such file"):
        supervise(Spec("none", ("/no/such",))).start()


def test_restarts_what_dies_later_and_later(supervise):
    supervisor = supervise(python("worker", SLEEPS))
    supervisor.start()
    stop = threading.Event()
    watcher = threading.Thread(target=supervisor.watch, args=(stop,))
    watcher.start()
    for kills in range(1, 4):
        pid = pid_of(supervisor, "worker")
        os.kill(pid, signal.SIGKILL)
        until(lambda old=pid: pid_of(supervisor, "worker") not in (None, old), "restarted")
        assert supervisor.status()[0].restarts == kills
    stop.set()
    watcher.join()
    waits = [line.split(" in ")[1].split()[0] for line in supervisor.lines if "starting it again" in line]
    assert waits == ["0.05", "0.1", "0.2"]
    assert "killed by signal 9" in supervisor.lines[-1]


def test_no_restart_when_not_wanted(supervise):
    supervisor = supervise(python("once", "raise SystemExit(0)", restart=False))
    supervisor.start()
    until(lambda: supervisor.look() == ["once"], "its end is told")
    assert supervisor.status()[0].problem == "ended with exit code 0"


def test_one_that_ignores_sigterm_is_killed_with_its_children(supervise, tmp_path):
    child = tmp_path / "child"
    code = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"p = subprocess.Popen([sys.executable, '-c', {SLEEPS!r}])\n"
        f"open({str(child)!r}, 'w').write(str(p.pid)); print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    supervisor = supervise(python("deaf", code, stop_grace_s=0.1, health=LogSays(tmp_path / "state/deaf.log")))
    supervisor.start()
    supervisor.stop()
    assert "did not stop within 0.1 s and was killed" in supervisor.lines[-1]
    until(lambda: start_mark(int(child.read_text())) is None, "the child is gone too")


def test_another_supervisor_finds_and_stops_what_runs(supervise, tmp_path):
    spec = python("service", SLEEPS)
    first = supervise(spec)
    first.start()
    pid = pid_of(first, "service")
    first._lock.close()  # as when its process was killed
    second = supervise(spec)
    second.start()
    assert pid_of(second, "service") == pid  # taken over, not started twice
    threading.Thread(target=first.processes[0].child.wait).start()  # what init does for an orphan
    second.stop()
    assert start_mark(pid) is None


def test_a_folder_has_one_supervisor(supervise):
    first = supervise(python("a", SLEEPS))
    first.start()
    second = supervise(python("a", SLEEPS))
    for attempt in (second.start, second.stop):
        with pytest.raises(SupervisorError, match="are being run by another command"):
            attempt()
    assert pid_of(first, "a")


def test_a_stranger_with_a_reused_process_id_is_never_touched(supervise, tmp_path):
    stranger = subprocess.Popen([sys.executable, "-c", SLEEPS])
    state = tmp_path / "state"
    state.mkdir()
    for started in ("some other boot 1", None):
        (state / "service.json").write_text(json.dumps({"pid": stranger.pid, "started": started, "argv": []}))
        supervisor = supervise(python("service", SLEEPS))
        assert supervisor.status()[0].pid is None
        supervisor.stop()
        assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_garbage_in_a_state_file_counts_as_not_running(tmp_path):
    for text in ("", "{", "[]", '{"pid": "x"}', '{"pid": -1, "started": "x"}'):
        (tmp_path / "service.json").write_text(text)
        assert not Process(Spec("service", ("true",)), tmp_path).running()


def test_stop_while_starting(supervise, tmp_path):
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    supervisor = supervise(python("a", SLEEPS), python("b", SLEEPS, health=LogSays(tmp_path / "never")))
    with pytest.raises(SupervisorError, match="stopped before all services were up"):
        supervisor.start(stop)
    assert all(row.pid is None for row in supervisor.status())


def test_a_long_log_is_set_aside(supervise, tmp_path):
    log = tmp_path / "state/service.log"
    log.parent.mkdir()
    log.write_bytes(b"x" * 2000)
    supervise(python("service", SLEEPS), max_log_bytes=1024).start()
    assert log.with_suffix(".log.1").stat().st_size == 2000 and log.stat().st_size == 0


def test_checks_of_sockets():
    with Server("tcp://127.0.0.1:0", {}, name="driver") as server:
        assert PingCheck(server.endpoint).problem(2.0) is None
        host, port = server.endpoint.removeprefix("tcp://").split(":")
        assert TcpCheck(host, int(port)).problem(2.0) is None
    assert "no answer to ping" in PingCheck(server.endpoint).problem(0.1)
    publisher = Publisher("tcp://127.0.0.1:0", heartbeat_s=0.1)
    try:
        assert PublisherCheck(publisher.endpoint).problem(3.0) is None  # by its heartbeat alone
    finally:
        publisher.close()
    assert "nothing heard" in PublisherCheck(publisher.endpoint).problem(0.2)


def test_checks_of_a_closed_port_say_so():
    port = free_port()
    assert "refused" in TcpCheck("127.0.0.1", port).problem(1.0)
    assert "refused" in HttpCheck(f"http://127.0.0.1:{port}/").problem(1.0)
