"""The event stream over a real socket: TestClient reads no endless answers."""

import socket
import time

import httpx
import pytest

from services.control.auth import Gate
from services.control.hub import _REMOVALS_KEPT
from tests.memory import resident_kib
from tests.services.control.conftest import events_of, serving


@pytest.fixture
def address(plane):
    with serving(plane, Gate(None)) as address:
        yield address


class Stream:
    """An open event stream."""

    def __init__(self, address: str, last: str | None = None) -> None:
        self._open = httpx.stream(
            "GET", f"{address}/api/events", headers={"Last-Event-ID": last} if last else {}, timeout=30
        )

    def __enter__(self) -> "Stream":
        self.reply = self._open.__enter__()
        self._parts = self.reply.iter_text()
        return self

    def __exit__(self, *exception) -> None:
        self._open.__exit__(*exception)

    def read_until(self, condition) -> str:
        text = ""
        for part in self._parts:
            text += part
            if condition(text):
                return text
        raise AssertionError(f"the stream ended: {text}")


def test_first_everything_then_what_changes(address, plane):
    plane.hub.put("arm", {"running": False})
    with Stream(address) as stream:
        assert stream.reply.headers["content-type"].startswith("text/event-stream")
        text = stream.read_until(lambda text: '"arm"' in text and text.endswith("\n\n"))
        assert text.startswith("retry: 1000\n\n") and "event: reset" in text
        plane.hub.put("run/a", {"state": "running"})
        plane.hub.remove("arm")
        text = stream.read_until(lambda text: text.count("data:") == 2)
        assert events_of(text) == [{"topic": "run/a", "value": {"state": "running"}}, {"topic": "arm", "value": None}]


def test_who_comes_back_gets_what_was_missed(address, plane):
    for i in range(3):
        plane.hub.put(f"run/{i}", i)
    with Stream(address) as stream:
        text = stream.read_until(lambda text: "run/2" in text)
    last = [line[4:] for line in text.splitlines() if line.startswith("id: ")][-1]
    plane.hub.put("run/1", "new")
    with Stream(address, last) as stream:
        text = stream.read_until(lambda text: "data:" in text and text.endswith("\n\n"))
    assert "reset" not in text and events_of(text) == [{"topic": "run/1", "value": "new"}]
    for foreign in ("0-5", "x", last.replace(plane.hub.epoch, "1")):
        with Stream(address, foreign) as stream:
            assert "event: reset" in stream.read_until(lambda text: "run/1" in text)


def test_quiet_streams_are_kept_open(plane, address):
    plane.settings = plane.settings.model_copy(
        update={"events": plane.settings.events.model_copy(update={"heartbeat_s": 0.1})}
    )
    with Stream(address) as stream:
        stream.read_until(lambda text: text.count(": still here") == 2)


def test_there_is_room_for_so_many(plane, address):
    plane.settings = plane.settings.model_copy(
        update={"events": plane.settings.events.model_copy(update={"max_clients": 2})}
    )
    plane.hub.put("a", 1)
    with Stream(address) as first, Stream(address) as second:
        for stream in (first, second):
            stream.read_until(lambda text: "data" in text)
        reply = httpx.get(f"{address}/api/events")
        assert reply.status_code == 429 and "2 browsers watch already" in reply.json()["error"]["text"]
    end = time.monotonic() + 30
    while plane.browsers:
        assert time.monotonic() < end, "browsers that left are counted for ever"
        time.sleep(0.02)


def test_a_browser_that_does_not_read_costs_nothing_and_misses_nothing(plane, address):
    """200 MB of changes pass by; what waits for it is bounded by the system's socket buffers."""
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as lazy:
        lazy.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while plane.browsers == 0:
            time.sleep(0.01)
        began = resident_kib()
        for i in range(2000):
            plane.hub.put("big", f"{i} {'x' * 100_000}")
            time.sleep(0.0005)
        assert resident_kib() - began < 30_000
        plane.hub.put("last", "word")
        lazy.settimeout(30)
        content = b""
        while b'"last"' not in content:
            part = lazy.recv(1 << 20)
            assert part
            content = content[-1000:] + part
    assert len(plane.hub._removed) <= _REMOVALS_KEPT
