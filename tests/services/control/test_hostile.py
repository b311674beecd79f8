"""Bytes that are no requests. `python -m tests.services.control.test_hostile 10000` sends more of them and measures."""

import random
import socket
import sys
import time

import httpx

from services.control.auth import Gate
from tests.memory import resident_kib
from tests.services.control.conftest import serving

HEAD = b"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
GOOD = HEAD % 17 + b'{"overrides": []}'
BODIES = (
    b"[" * 50_000, b'{"a":' * 10_000, b"\xff\xfe", b"1e999", b"null", b'"\\ud800"', b"{}" * 9, b'{"demos": NaN}',
)  # fmt: skip
TARGETS = (
    b"/api/runs/%00", b"/api/runs/..%2f..", b"//", b"*", b"/api/cameras/%ff/frame.jpg", b"http://[",
    b"/page/%2e%2e/app.py",
)  # fmt: skip


def hostile(random_: random.Random) -> bytes:
    """Noise, a request cut off, changed, with a lying length, huge, of deep JSON, to a strange address."""
    kind = random_.randrange(9)
    if kind == 0:
        return random_.randbytes(random_.randrange(1, 3000))
    if kind == 1:
        return GOOD[: random_.randrange(1, len(GOOD))]
    if kind == 2:
        changed = bytearray(GOOD)
        for _ in range(random_.randrange(1, 8)):
            changed[random_.randrange(len(changed))] = random_.randrange(256)
        return bytes(changed)
    if kind == 3:
        return GOOD.replace(b"Content-Length: 17", b"Content-Length: %d" % random_.choice([-1, 0, 5, 10**6, 10**30]))
    if kind == 4:
        return b"GET /" + b"a" * random_.randrange(1, 200_000) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    if kind == 5:
        return b"GET /api/runs HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * random_.randrange(1, 20_000) + b"\r\n"
    if kind == 6:
        body = random_.choice(BODIES)
        return HEAD % len(body) + body
    if kind == 7:
        return b"GET " + random_.choice(TARGETS) + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    return GOOD.replace(b"Content-Length: 17", b"Transfer-Encoding: chunked").replace(
        b"{", b"%x\r\n{" % random_.randrange(2**40)
    )


def attack(address: str, count: int, seed: int = 0) -> list[str]:
    """Send `count` of them, each on a connection that is then dropped; statuses of 500 and more that came back."""
    host, port = address.removeprefix("http://").split(":")
    random_, faults = random.Random(seed), []
    for i in range(count):
        with socket.create_connection((host, int(port)), timeout=10) as peer:
            try:
                peer.sendall(hostile(random_))
                if i % 4 == 0:  # the others do not wait for an answer
                    peer.shutdown(socket.SHUT_WR)
                    answer = peer.recv(65536)
                    if answer.startswith(b"HTTP/1.1 5"):
                        faults.append(answer[:200].decode(errors="replace"))
            except OSError:
                pass
        if i % 50 == 49:
            assert httpx.get(f"{address}/api/health", timeout=60).json()["ok"]
    return faults


def test_the_next_good_request_is_served_and_memory_stays(plane):
    with serving(plane, Gate(None)) as address:
        attack(address, 100)
        before = resident_kib()
        assert attack(address, 300, seed=1) == []
        assert resident_kib() - before < 20_000
        assert httpx.get(f"{address}/api/runs", timeout=60).status_code == 200


def test_connections_that_say_nothing_take_no_place_for_long(plane):
    http = plane.settings.http.model_copy(update={"max_connections": 20, "patience_s": 1.0})
    plane.settings = plane.settings.model_copy(update={"http": http})
    with serving(plane, Gate(None)) as address:
        host, port = address.removeprefix("http://").split(":")
        peers = [socket.create_connection((host, int(port)), timeout=30) for _ in range(30)]
        for peer, begun in zip(peers, [b"", b"GET / HT", GOOD[:-5]] * 10, strict=True):
            try:
                peer.sendall(begun)
            except OSError:
                pass  # one too many
        for peer in peers:
            try:
                answer = peer.recv(65536)
            except ConnectionResetError:
                answer = b""
            assert answer == b"" or answer.startswith(b"HTTP/1.1 408 ")
            peer.close()
        assert httpx.get(f"{address}/api/health", timeout=60).json()["ok"]


def _by_hand(count: int) -> None:
    import logging
    import os
    import tempfile
    from pathlib import Path

    from services.control.plane import ControlPlane
    from so101.config import load_config
    from tests.services.control.conftest import FakeLauncher, isolated

    logging.disable(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp())
    os.chdir(folder)
    with (
        ControlPlane(load_config(overrides=isolated(folder)), FakeLauncher()) as plane,
        serving(plane, Gate(None)) as address,
    ):
        began, memory = time.monotonic(), []
        for part in range(5):
            memory.append(round(resident_kib() / 1024, 1))
            faults = attack(address, count // 5, seed=part)
            assert faults == [], faults
        memory.append(round(resident_kib() / 1024, 1))
        print(f"{count} in {time.monotonic() - began:.0f} s, resident MB {memory}, runs {len(plane.runs.list())}")


if __name__ == "__main__":
    _by_hand(int(sys.argv[1]))
