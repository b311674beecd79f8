"""The policy server: GR00T's protocol on a ROUTER socket, so that nobody waits for anybody but the policy.

One thread owns the socket: it takes requests, answers what needs no policy, refuses what is wrong, and sends. A second
one owns the policy and does one request at a time.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections import OrderedDict, deque
from typing import Any

import zmq

from proto.errors import BadMessage, ProtoError
from proto.groot import Limits, Wire, decode, encode, generations
from services.policy.checks import check_action, check_observation
from services.policy.counters import Counters
from services.policy.modalities import to_wire
from services.policy.queue import FairQueue
from services.policy.requests import Request, RequestRefused, Unauthorized, client_of, open_envelope, parse
from so101.config.deploy import ServerConfig
from so101.errors import So101Error
from so101.policies import Policy
from so101.policies.base import PolicyError

log = logging.getLogger(__name__)

_PING = {"status": "ok", "message": "Server is running"}
_QUEUED = ("get_action", "reset")
_POLL_MS = 100  # how soon a stop is seen
_AT_ONCE = 64  # messages taken before replies are sent again
_CLIENTS_KNOWN = 4096  # whose generation is remembered
_LINGER_MS = 1000  # for the last replies when it ends
_LONGEST_ERROR = 2000  # characters


class PolicyServer:
    """Serves `policy` until stopped.

    Args:
        endpoint: where to bind, e.g. ``tcp://127.0.0.1:5555``.
        settings: deploy.server.
        token: what clients must send as `api_token`; None asks for none.

    Raises:
        OSError: the address is taken or cannot be.
    """

    def __init__(self, policy: Policy, endpoint: str, settings: ServerConfig, token: str | None = None) -> None:
        self.counters = Counters()
        self._policy, self._settings, self._token = policy, settings, token
        self._limits = Limits(bytes=settings.max_message_bytes)
        self._queue = FairQueue(settings.max_queued, settings.max_queued_bytes)
        self._done: deque[tuple[Request, bytes, bool]] = deque()
        self._generations: OrderedDict[bytes, Wire] = OrderedDict()
        self._stop = threading.Event()
        self._killed = False
        self._thread: threading.Thread | None = None
        self._context = zmq.Context()  # its own, so that it can be ended in order and the last replies leave
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.router_mandatory = True  # a client that is gone or does not read is an error, not silence
        self._socket.sndhwm = self._socket.rcvhwm = settings.high_water
        self._socket.maxmsgsize = settings.max_message_bytes
        self._socket.ipv6 = "[" in endpoint
        self._ring, self._bell = socket.socketpair()  # rung by the policy's thread when a reply is ready
        self._ring.setblocking(False)
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as error:
            self._close_sockets()
            raise OSError(error.errno, f"cannot bind {endpoint}: {error.strerror}") from None
        self.endpoint = self._socket.last_endpoint.decode()

    def start(self) -> PolicyServer:
        """Serve on a thread of its own."""
        self._thread = threading.Thread(target=self.serve, args=(self._stop,), name="policy-server", daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """End the thread of `start`."""
        self._stop.set()
        if self._thread is None:
            self._close_sockets()
        else:
            self._thread.join()

    def __enter__(self) -> PolicyServer:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def serve(self, stop: threading.Event) -> None:
        """Serve until `stop` is set or a client may and does kill it."""
        worker = threading.Thread(target=self._work, name="policy", daemon=True)
        worker.start()
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._bell, zmq.POLLIN)
        try:
            while not (stop.is_set() or self._killed):
                ready = dict(poller.poll(_POLL_MS))
                if self._bell.fileno() in ready:
                    self._bell.recv(4096)
                while self._done:
                    self._send(*self._done.popleft())
                if self._socket in ready:
                    self._take_messages()
                for request in self._queue.expire(self._settings.deadline_ms / 1000):
                    self.counters.expired += 1
                    self._fail(request, self._too_late(request))
        finally:
            for request in self._queue.close():
                self._fail(request, "the server is stopping")
            worker.join(timeout=_LINGER_MS / 1000)
            while self._done:
                self._send(*self._done.popleft())
            self._close_sockets()

    def _close_sockets(self) -> None:
        self._socket.close(linger=_LINGER_MS)
        self._context.term()
        self._bell.close()
        self._ring.close()

    # The thread of the socket

    def _take_messages(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                frames = self._socket.recv_multipart(zmq.DONTWAIT, copy=False)
            except zmq.Again:
                return
            self._take(frames)

    def _take(self, frames: list[zmq.Frame]) -> None:
        envelope, parts = open_envelope(frames)
        client = client_of(envelope[0])
        request = Request(client, envelope, "malformed", {}, self._wire_for(client, None))
        try:
            if len(parts) != 1:
                raise BadMessage(f"a message is one frame, got {len(parts)}")
            decoded = decode(parts[0], self._limits)
            endpoint, arguments, flat = parse(decoded.value, self._token)
            wire = self._wire_for(client, "w1" if flat else decoded.wire)
            request = Request(client, envelope, endpoint, arguments, wire, flat, len(parts[0]), request.arrived)
            self.counters.requests[endpoint] += 1
            self._dispatch(request)
        except (BadMessage, RequestRefused, PolicyError) as error:
            if isinstance(error, Unauthorized):
                self.counters.unauthorized += 1
                log.warning("client %s refused: wrong or no API token", _name(client))
            elif request.endpoint == "malformed":
                self.counters.requests["malformed"] += 1
            self._fail(request, str(error))
        except Exception as error:  # a mistake of ours must not end the thread that serves everybody
            log.exception("%s failed", request.endpoint)
            self._fail(request, f"{request.endpoint} failed: {error}")

    def _dispatch(self, request: Request) -> None:
        if request.endpoint in _QUEUED:
            if request.endpoint == "get_action" and self._settings.strict:
                arguments = request.arguments
                arguments["observation"] = check_observation(arguments["observation"], self._policy.modality)
            try:
                replaced = self._queue.put(request)
            except RequestRefused:
                self.counters.refused += 1
                raise
            for old in replaced:
                self.counters.superseded += 1
                self._fail(old, "superseded by a newer request of the same client; not computed")
        elif request.endpoint == "kill" and not self._settings.allow_kill:
            raise RequestRefused("kill is not allowed; start the server with --allow-kill, or stop its process")
        else:
            answers = {
                "ping": lambda: _PING,
                "kill": lambda: None,
                "get_modality_config": lambda: to_wire(self._policy.modality),
                "stats": self._stats,
            }
            self._send(request, encode(answers[request.endpoint](), request.wire), False)
            if request.endpoint == "kill":
                log.warning("killed by a client")
                self._killed = True

    def _stats(self) -> dict[str, Any]:
        return {**self.counters.report(), "queued": self._queue.length, "policy": type(self._policy).__name__}

    def _wire_for(self, client: bytes, seen: Wire | None) -> Wire:
        """The generation for replies to `client`: what it just spoke, else what it spoke before, else the setting."""
        if seen is None:
            return self._generations.get(client, self._settings.wire)
        if client not in self._generations:
            self.counters.generations[seen] += 1
            log.info("client %s speaks %s", _name(client), seen)
            if len(self._generations) >= _CLIENTS_KNOWN:
                self._generations.popitem(last=False)
        self._generations[client] = seen
        return seen

    def _too_late(self, request: Request) -> str:
        return (
            f"{request.endpoint} waited {request.age_ms:.0f} ms for the policy, longer than the deadline of "
            f"{self._settings.deadline_ms:g} ms; not computed"
        )

    def _fail(self, request: Request, text: str) -> None:
        self._send(request, _error(text), True)

    def _send(self, request: Request, reply: bytes, failed: bool) -> None:
        self.counters.errors += failed
        frames = [*request.envelope, reply]
        try:
            try:
                self._socket.send_multipart(frames, zmq.DONTWAIT, copy=False)
            except zmq.Again:  # ZeroMQ looks only now and then whether the client has read: make it look
                self._socket.get(zmq.EVENTS)
                self._socket.send_multipart(frames, zmq.DONTWAIT, copy=False)
        except zmq.ZMQError as error:  # gone (EHOSTUNREACH), or does not read (EAGAIN)
            self.counters.dropped += 1
            log.debug("reply to %s dropped: %s", _name(request.client), error)
        if log.isEnabledFor(logging.DEBUG):
            outcome = f"error {reply[:200]!r}" if failed else f"{len(reply)} bytes"
            log.debug("%s %s in %.1f ms: %s", _name(request.client), request.endpoint, request.age_ms, outcome)

    # The thread of the policy

    def _work(self) -> None:
        while (request := self._queue.get()) is not None:
            self._done.append((request, *self._answer(request)))
            with contextlib.suppress(OSError):  # enough rings wait already, or nobody listens any more
                self._ring.send(b".")

    def _answer(self, request: Request) -> tuple[bytes, bool]:
        """The reply, and whether it is an error."""
        if request.age_ms > self._settings.deadline_ms:
            self.counters.expired += 1
            return _error(self._too_late(request)), True
        began = time.monotonic()
        self.counters.queue_ms.append(request.age_ms)
        try:
            return encode(self._compute(request), request.wire), False
        except Exception as error:  # of any policy: the client is told, the next one is served
            expected = isinstance(error, (So101Error, ProtoError))
            log.warning("%s failed: %s", request.endpoint, error, exc_info=not expected)
            return _error(str(error) or type(error).__name__), True
        finally:
            self.counters.infer_ms.append((time.monotonic() - began) * 1000)

    def _compute(self, request: Request) -> Any:
        options = request.arguments.get("options")
        if request.endpoint == "reset":
            return self._policy.reset(options) or {}
        action, info = self._policy.get_action(request.arguments["observation"], options)
        action = check_action(action, self._policy.modality)
        return generations.flat_action(action) if request.flat else [action, info]


def _error(text: str) -> bytes:
    return encode({"error": text[:_LONGEST_ERROR]})


def _name(client: bytes) -> str:
    return client[-4:].hex()
