"""The sockets of our services: request and reply, publish and subscribe.

Nothing here blocks for ever, no peer can make a server raise, and a client that gave up never reads the answer to an
older question. Sockets close without waiting for peers (linger).
"""

from __future__ import annotations

import errno
import itertools
import logging
import socket as unix
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import zmq

from proto.codec import decode, encode
from proto.errors import BadMessage, RemoteError, RequestTimeout, TooLarge, UnknownType, UnknownVersion
from proto.messages import Message
from proto.messages.common import ErrorReply, Heartbeat, Ping, Pong
from proto.security import OPEN, HandshakeWatch, Security
from proto.stopping import StopFlag

log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 1 << 26  # 64 MiB; more than three cameras or a chunk of a file
LINGER_MS = 500  # what was sent gets this long to leave when a server ends
_POLL_MS = 100  # how soon a stop flag is seen
_TEXT_LIMIT = 4000  # characters of an error sent to a peer
_CODES = {UnknownVersion: "unknown_version", UnknownType: "unknown_type", TooLarge: "too_large"}
_SEQUENCE = struct.Struct("<Q")
HEARTBEAT_TOPIC = "\0heartbeat"

Handler = Callable[[Any], Message]


def _socket(kind: int, endpoint: str, security: Security, max_message_bytes: int, high_water: int) -> zmq.Socket:
    socket = zmq.Context.instance().socket(kind)
    socket.linger = 0
    socket.maxmsgsize = max_message_bytes  # of one frame; a longer one ends the peer's connection
    socket.sndhwm = socket.rcvhwm = high_water
    socket.ipv6 = "[" in endpoint
    # ZMTP heartbeats stay off: libzmq 4.3.5 aborts the process when one is due for a peer that flooded and left
    # (stream_engine_base: !_io_error). TCP notices a peer whose machine is gone: 10 s of silence, then 3 probes.
    socket.tcp_keepalive, socket.tcp_keepalive_idle, socket.tcp_keepalive_intvl, socket.tcp_keepalive_cnt = 1, 10, 3, 3
    socket.reconnect_ivl, socket.reconnect_ivl_max = 100, 2000  # ms, doubling
    socket.handshake_ivl = 5000  # ms a peer has to say who it is
    security.apply(socket)
    return socket


def _bind(socket: zmq.Socket, endpoint: str) -> None:
    """Bind, but not to an ipc path where somebody listens: ZeroMQ would take the path away from them, unseen.

    Raises:
        ZMQError: the endpoint is taken, or cannot be.
    """
    scheme, _, path = endpoint.partition("://")
    if scheme == "ipc" and not path.startswith("@"):
        with unix.socket(unix.AF_UNIX, unix.SOCK_STREAM) as probe:
            try:
                probe.connect(path)
            except OSError:
                pass  # nobody there, or left behind by a process that was killed
            else:
                raise zmq.ZMQError(errno.EADDRINUSE)
    socket.bind(endpoint)


def error_code(error: BaseException) -> str:
    """The code of `ErrorReply` for an exception; a `RemoteError` keeps its own."""
    if isinstance(error, RemoteError):
        return error.code
    return _CODES.get(type(error), "bad_message" if isinstance(error, BadMessage) else "failed")


def error_reply(error: BaseException) -> ErrorReply:
    """What a peer is told about `error`."""
    text = str(error) or type(error).__name__
    return ErrorReply(code=error_code(error), text=text[:_TEXT_LIMIT].encode(errors="replace").decode())


class Server:
    """Answers requests, one at a time, in the order they came: ROUTER, binds.

    Args:
        endpoint: ``tcp://host:port`` (port 0: any free one) or ``ipc://path``.
        handlers: what to do for each request type; returns the reply, or raises (`RemoteError` to choose the code).
        name: of the service, for `Pong` and the log.
        idle: called about every 100 ms and after every request, in the serving thread.
    """

    def __init__(
        self,
        endpoint: str,
        handlers: Mapping[type[Message], Handler],
        *,
        name: str,
        security: Security = OPEN,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        idle: Callable[[], None] | None = None,
    ) -> None:
        self._handlers = {Ping: self._pong, **handlers}
        self._name, self._limit, self._idle = name, max_message_bytes, idle
        self._started = time.monotonic()
        self._stop = StopFlag()
        self._thread: threading.Thread | None = None
        self._socket = _socket(zmq.ROUTER, endpoint, security, max_message_bytes, 1000)
        self._watch = HandshakeWatch(self._socket, name)
        try:
            _bind(self._socket, endpoint)
        except zmq.ZMQError as error:
            self._release()
            raise OSError(error.errno, f"{name} cannot bind {endpoint}: {error.strerror}") from None
        self.endpoint = self._socket.last_endpoint.decode()
        self.refused_messages = 0

    def serve(self, stop: StopFlag) -> None:
        """Answer until `stop` is set or `close` is called; the socket is closed then."""
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._watch.socket, zmq.POLLIN)
        try:
            while not (stop.is_set() or self._stop.is_set()):
                ready = dict(poller.poll(_POLL_MS))
                if self._watch.socket in ready:
                    self._watch.read()
                if self._socket in ready:
                    self._answer(self._socket.recv_multipart(copy=False))
                if self._idle is not None:
                    self._idle()
        finally:
            self._release()

    def start(self) -> Server:
        """Serve on a thread of its own."""
        self._thread = threading.Thread(target=self.serve, args=(self._stop,), name=self._name, daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """End the thread, or a `serve` that runs elsewhere; from any thread."""
        self._stop.set()
        if self._thread is None:
            self._release()
        elif self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _release(self) -> None:
        if not self._socket.closed:
            self._watch.close()
            self._socket.close(linger=LINGER_MS)

    def _pong(self, request: Ping) -> Pong:
        return Pong(service=self._name, uptime_s=time.monotonic() - self._started)

    def _answer(self, frames: list[zmq.Frame]) -> None:
        if len(frames) < 2 or len(frames[1]) != _SEQUENCE.size:  # not even a request id to answer to
            self.refused_messages += 1
            return
        try:
            reply = encode(self._handle(frames[2:]))
        except Exception as error:
            log.exception("%s: a reply could not be made", self._name)
            reply = encode(error_reply(error))
        try:
            self._socket.send_multipart([frames[0], frames[1], *reply], flags=zmq.DONTWAIT, copy=False)
        except zmq.ZMQError as error:  # a peer that is gone or does not read
            log.warning("%s: reply dropped (%s)", self._name, error)

    def _handle(self, frames: Sequence[zmq.Frame]) -> Message:
        try:
            request = decode(frames, self._limit)
            handler = self._handlers.get(type(request))
            if handler is None:
                known = ", ".join(sorted(kind.__name__ for kind in self._handlers))
                raise UnknownType(f"{self._name} takes no {type(request).__name__}; it takes {known}")
        except BadMessage as error:
            self.refused_messages += 1
            log.debug("%s: bad message: %s", self._name, error)
            return error_reply(error)
        try:
            return handler(request)
        except RemoteError as error:
            return error_reply(error)
        except Exception as error:
            log.warning("%s: %s failed: %s", self._name, type(request).__name__, error, exc_info=True)
            return error_reply(error)


class Client:
    """Asks a `Server`: DEALER, connects, by itself again when the server comes back. For one thread.

    Args:
        timeout_s: the most a request waits, unless it says otherwise.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        timeout_s: float,
        security: Security = OPEN,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        if not timeout_s > 0:
            raise ValueError(f"timeout_s is {timeout_s}; it must be above 0")
        self.endpoint, self.timeout_s = endpoint, timeout_s
        self._security, self._limit = security, max_message_bytes
        self._ids = itertools.count(1)
        self._connect()

    def _connect(self) -> None:
        self._socket = _socket(zmq.DEALER, self.endpoint, self._security, self._limit, 1000)
        self._watch = HandshakeWatch(self._socket, self.endpoint)
        self._socket.connect(self.endpoint)

    def request(self, message: Message, timeout_s: float | None = None) -> Message:
        """The reply to `message`. Never sent twice: after a timeout the caller decides.

        Raises:
            RequestTimeout: no reply in time; the connection is made anew.
            RemoteError: the server answered with an error.
            BadMessage: the reply is none of ours.
        """
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        number = _SEQUENCE.pack(next(self._ids))
        try:
            self._socket.send_multipart([number, *encode(message)], flags=zmq.DONTWAIT, copy=False)
            while True:
                left_ms = (deadline - time.monotonic()) * 1000
                if not self._socket.poll(max(0, left_ms)):
                    raise zmq.Again
                frames = self._socket.recv_multipart(copy=False)
                if frames[0].bytes == number:
                    break
        except zmq.Again:
            self._watch.read()
            why = f" ({self._watch.reason})" if self._watch.reason else ""
            self.close()
            self._connect()
            raise RequestTimeout(
                f"{self.endpoint}: no answer to {type(message).__name__} within {timeout_s:g} s{why}"
            ) from None
        reply = decode(frames[1:], self._limit)
        if isinstance(reply, ErrorReply):
            raise RemoteError(reply.code, reply.text)
        return reply

    def close(self) -> None:
        if not self._socket.closed:
            self._watch.close()
            self._socket.close(linger=0)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Publisher:
    """Tells everyone who listens: PUB, binds. Slow subscribers lose messages, never delay it. For any thread.

    Args:
        heartbeat_s: a `Heartbeat` is sent this often, so that subscribers know a quiet publisher from a dead one.
        high_water: messages kept for a subscriber that is behind; more are dropped.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        security: Security = OPEN,
        heartbeat_s: float = 1.0,
        high_water: int = 8,
    ) -> None:
        self._lock = threading.Lock()
        self._number = itertools.count(1)
        self._ended = threading.Event()
        self._socket = _socket(zmq.PUB, endpoint, security, MAX_MESSAGE_BYTES, high_water)
        self._watch = HandshakeWatch(self._socket, endpoint)
        try:
            _bind(self._socket, endpoint)
        except zmq.ZMQError as error:
            self._watch.close()
            self._socket.close()
            raise OSError(error.errno, f"cannot bind {endpoint}: {error.strerror}") from None
        self.endpoint = self._socket.last_endpoint.decode()
        self._beat = threading.Thread(target=self._beats, args=(heartbeat_s,), name="heartbeat", daemon=True)
        self._beat.start()

    def send(self, topic: str, message: Message) -> zmq.MessageTracker | None:
        """Send `message` under `topic`. Arrays are not copied: leave them alone until the tracker is done.

        Returns:
            Done once all subscribers' copies have left or were dropped; None when it already is.
        """
        frames = encode(message)
        with self._lock:
            if self._socket.closed:
                raise ValueError(f"{self.endpoint}: the publisher is closed")
            number = _SEQUENCE.pack(next(self._number))
            return self._socket.send_multipart([topic.encode(), number, *frames], copy=False, track=True)

    def _beats(self, interval_s: float) -> None:
        while not self._ended.wait(interval_s):
            with self._lock:
                self._watch.read()
            self.send(HEARTBEAT_TOPIC, Heartbeat())

    def close(self) -> None:
        self._ended.set()
        self._beat.join()
        with self._lock:
            if not self._socket.closed:
                self._watch.close()
                self._socket.close(linger=0)

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Subscriber:
    """Listens to a `Publisher`: SUB, connects, by itself again when the publisher comes back. For one thread.

    Attributes:
        skipped: messages that came and were dropped for newer ones by `latest`.
        malformed: messages that were none of ours.
    """

    def __init__(
        self,
        endpoint: str,
        topics: Sequence[str] = ("",),
        *,
        security: Security = OPEN,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        high_water: int = 64,
    ) -> None:
        self.endpoint = endpoint
        self.skipped = self.malformed = 0
        self._limit = max_message_bytes
        self._last = time.monotonic()
        self._socket = _socket(zmq.SUB, endpoint, security, max_message_bytes, high_water)
        for topic in (*topics, HEARTBEAT_TOPIC):
            self._socket.subscribe(topic)
        self._socket.connect(endpoint)

    @property
    def age_s(self) -> float:
        """Since anything came, heartbeats included, s; since it was made when nothing did."""
        return time.monotonic() - self._last

    def receive(self, timeout_s: float) -> tuple[str, Message] | None:
        """The next message and its topic, None when none comes in time."""
        deadline = time.monotonic() + timeout_s
        while self._socket.poll(max(0.0, deadline - time.monotonic()) * 1000):
            arrived = self._read()
            if arrived is not None:
                return arrived
        return None

    def latest(self, timeout_s: float) -> dict[str, Message]:
        """The newest message of each topic that waits, after waiting up to `timeout_s` for the first."""
        newest: dict[str, Message] = {}
        arrived = self.receive(timeout_s)
        while arrived is not None:
            topic, message = arrived
            self.skipped += topic in newest
            newest[topic] = message
            arrived = self.receive(0)
        return newest

    def _read(self) -> tuple[str, Message] | None:
        frames = self._socket.recv_multipart(copy=False)
        try:
            if len(frames) < 4 or len(frames[1]) != _SEQUENCE.size:
                raise BadMessage("no topic and number before the message")
            topic = frames[0].bytes.decode()
            message = decode(frames[2:], self._limit)
        except (BadMessage, UnicodeDecodeError) as error:
            self.malformed += 1
            log.debug("%s: malformed message ignored: %s", self.endpoint, error)
            return None
        self._last = time.monotonic()
        return None if isinstance(message, Heartbeat) else (topic, message)

    def close(self) -> None:
        self._socket.close(linger=0)

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
