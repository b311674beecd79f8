"""The client of a policy server: ours, or an unmodified Isaac-GR00T."""

from __future__ import annotations

import functools
import itertools
import uuid
from typing import Any

import zmq

from proto.errors import BadMessage, RemoteError, RequestTimeout
from proto.groot import Limits, ModalityConfig, Wire, decode, encode, generations
from services.policy.modalities import from_wire
from services.policy.requests import IDENTITY_PREFIX
from so101.config import Config
from so101.policies import Action, Modality, Observation

_LEGACY_ERROR = b"ERROR"  # of servers before N1.5


class PolicyClient:
    """A `Policy` somewhere else. For one thread at a time.

    A request is sent once: after a timeout the connection is made anew and the caller decides. A reply that comes after
    its request timed out is never taken for that of another (REQ_CORRELATE).

    Args:
        timeout_ms: the most a request waits for its reply.
        api_token: sent with every request when given.
        wire: generation that requests are written in; replies of all are read.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int = 5555,
        *,
        timeout_ms: int = 15000,
        api_token: str | None = None,
        wire: Wire = "w2",
        max_message_bytes: int = 64 << 20,
        endpoint: str | None = None,
    ) -> None:
        _check_timeout(timeout_ms)
        self.endpoint = endpoint or f"tcp://{f'[{host}]' if ':' in host else host}:{port}"
        self.timeout_ms, self.wire = timeout_ms, wire
        self._token = api_token
        self._limits = Limits(bytes=max_message_bytes)
        self._name = IDENTITY_PREFIX + uuid.uuid4().bytes
        self._connections = itertools.count()
        self._socket: zmq.Socket | None = None

    @classmethod
    def from_config(cls, config: Config, api_token: str | None = None) -> PolicyClient:
        """The client that deploy.client describes."""
        settings = config.deploy.client
        return cls(
            settings.host,
            settings.port,
            timeout_ms=settings.timeout_ms,
            api_token=api_token,
            wire=settings.wire,
            max_message_bytes=settings.max_message_bytes,
        )

    # What a policy offers

    @functools.cached_property
    def modality(self) -> Modality:
        """What the server's policy takes and gives, asked once."""
        return from_wire(self.get_modality_config())

    def get_action(
        self, observation: Observation | None, options: dict[str, Any] | None = None
    ) -> tuple[Action, dict[str, Any]]:
        """A chunk of joint targets. Raises as `request`."""
        if self.wire == "w1":
            reply = self.request("get_action", generations.flat_observation(observation or {}))
            return generations.nested_action(_expect(reply, dict, "get_action")), {}
        reply = self.request("get_action", {"observation": observation, "options": options})
        match reply:
            case [dict(action), dict(info)]:
                return action, info
        raise BadMessage(f"{self.endpoint}: get_action was answered with {type(reply).__name__}, not [action, info]")

    def reset(self, options: dict[str, Any] | None = None) -> dict[str, Any]:
        """Begin an episode anew; a server of N1.5 (w1) has nothing to begin. Raises as `request`."""
        if self.wire == "w1":
            return {}
        return _expect(self.request("reset", {"options": options}), dict, "reset")

    # What a server offers

    def ping(self, timeout_ms: int | None = None) -> bool:
        """Whether a server answers; False when none does in time.

        Raises:
            RemoteError: it does, but lets us not in.
        """
        try:
            return isinstance(self.request("ping", timeout_ms=timeout_ms), dict)
        except RequestTimeout:
            return False

    def get_modality_config(self) -> dict[str, ModalityConfig]:
        """The four configurations, empty when the policy has none. Raises as `request`."""
        return _expect(self.request("get_modality_config"), dict, "get_modality_config")

    def stats(self) -> dict[str, Any]:
        """Counters of a server of ours. Raises as `request`."""
        return _expect(self.request("stats"), dict, "stats")

    def kill(self) -> None:
        """End the server, if it allows that. Raises as `request`."""
        self.request("kill")

    def request(self, endpoint: str, data: dict[str, Any] | None = None, *, timeout_ms: int | None = None) -> Any:
        """The reply to one request.

        Raises:
            RequestTimeout: none came in time; the request may have been carried out.
            RemoteError: the server answered with an error.
            BadMessage: the reply cannot be read.
        """
        timeout_ms = self.timeout_ms if timeout_ms is None else timeout_ms
        _check_timeout(timeout_ms)
        message: dict[str, Any] = {"endpoint": endpoint}
        if data is not None:
            message["data"] = data
        if self._token:
            message["api_token"] = self._token
        parts = self._exchange(encode(message, self.wire), endpoint, timeout_ms)
        if len(parts) != 1:
            raise BadMessage(f"{self.endpoint}: a reply is one frame, got {len(parts)}")
        if len(parts[0]) == len(_LEGACY_ERROR) and parts[0].bytes == _LEGACY_ERROR:
            raise RemoteError("failed", f"{self.endpoint}: {endpoint} failed; the server is too old to say why")
        try:
            reply = decode(parts[0], self._limits).value
        except BadMessage as error:
            raise type(error)(f"{self.endpoint}: the reply to {endpoint} cannot be read: {error}") from None
        if isinstance(reply, dict) and "error" in reply:
            raise RemoteError("failed", str(reply["error"]))
        return reply

    def _exchange(self, message: bytes, endpoint: str, timeout_ms: int) -> list[zmq.Frame]:
        socket = self._socket or self._connect()
        socket.sndtimeo = socket.rcvtimeo = timeout_ms
        try:
            socket.send(message, copy=False)
            return socket.recv_multipart(copy=False)
        except zmq.Again:
            self.close()
            raise RequestTimeout(
                f"{self.endpoint}: no answer to {endpoint} within {timeout_ms} ms; is the policy server running there "
                "(./policy), and quick enough?"
            ) from None
        except BaseException:  # interrupted between the two: this socket cannot be used again
            self.close()
            raise

    def _connect(self) -> zmq.Socket:
        self._socket = socket = zmq.Context.instance().socket(zmq.REQ)
        socket.linger = 0
        socket.req_correlate = True
        socket.maxmsgsize = self._limits.bytes
        socket.ipv6 = "[" in self.endpoint
        socket.identity = self._name + next(self._connections).to_bytes(4, "big")
        socket.connect(self.endpoint)
        return socket

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close(linger=0)
            self._socket = None

    def __enter__(self) -> PolicyClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _check_timeout(timeout_ms: float) -> None:
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int) or timeout_ms <= 0:
        raise ValueError(
            f"timeout_ms is {timeout_ms!r}; it must be a whole number of ms above 0 (ZeroMQ takes others as 'for ever')"
        )


def _expect(reply: Any, kind: type, endpoint: str) -> Any:
    if not isinstance(reply, kind):
        raise BadMessage(f"{endpoint} was answered with {type(reply).__name__}, not {kind.__name__}")
    return reply
