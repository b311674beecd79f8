"""Requests on GR00T's wire, taken apart and checked."""

from __future__ import annotations

import hmac
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import zmq

from proto.groot import Wire, generations
from so101.errors import did_you_mean

ENDPOINTS = {  # endpoint -> keys its data may have
    "ping": (),
    "kill": (),
    "get_action": ("observation", "options"),
    "reset": ("options",),
    "get_modality_config": (),
    "stats": (),
}
IDENTITY_PREFIX = b"so101:"  # our clients call themselves this, then who they are, then the number of the connection
IDENTITY_LENGTH = len(IDENTITY_PREFIX) + 16
_LONGEST_ENVELOPE = 8


class RequestRefused(Exception):
    """A request that is answered with an error; the text is the answer."""


class Unauthorized(RequestRefused):
    """The token is missing or wrong."""


@dataclass(frozen=True)
class Request:
    """One request.

    Attributes:
        client: who asked; stays the same when one of our clients connects anew.
        envelope: frames to send before the reply.
        arguments: `data`; a get_action of N1.5 is already in the shape of N1.6.
        wire: generation the reply is to be written in.
        flat: N1.5: the action goes back flat.
        size: bytes of the message.
        arrived: `time.monotonic()` when it came.
    """

    client: bytes
    envelope: list[bytes]
    endpoint: str
    arguments: dict[str, Any] = field(repr=False)
    wire: Wire
    flat: bool = False
    size: int = 0
    arrived: float = field(default_factory=time.monotonic)

    @property
    def age_ms(self) -> float:
        return (time.monotonic() - self.arrived) * 1000


def client_of(identity: bytes) -> bytes:
    """Who is behind a routing id; ZeroMQ's own ids are new with every connection."""
    return identity[:IDENTITY_LENGTH] if identity.startswith(IDENTITY_PREFIX) else identity


def open_envelope(frames: Sequence[zmq.Frame]) -> tuple[list[bytes], list[zmq.Frame]]:
    """The frames to send before a reply, and those of the message. REQ ends the envelope with an empty frame; a DEALER
    may send none."""
    for number, frame in enumerate(frames[1:_LONGEST_ENVELOPE], 1):
        if len(frame) == 0:
            return [part.bytes for part in frames[: number + 1]], list(frames[number + 1 :])
    return [frames[0].bytes], list(frames[1:])


def parse(value: Any, token: str | None) -> tuple[str, dict[str, Any], bool]:
    """Endpoint, arguments, and whether it is an observation of N1.5, in a decoded message.

    Raises:
        Unauthorized: the token is not `token`.
        RequestRefused: not a request, or wrong data for the endpoint.
    """
    if not isinstance(value, dict):
        raise RequestRefused(f"a request is a map with endpoint and data, got {type(value).__name__}")
    if token is not None and not _same(value.get("api_token"), token):
        raise Unauthorized("Unauthorized: Invalid API token")
    endpoint = value.get("endpoint", "get_action")
    if not isinstance(endpoint, str) or endpoint not in ENDPOINTS:
        name = str(endpoint)[:64]
        raise RequestRefused(f"Unknown endpoint: {name} (known: {', '.join(ENDPOINTS)}{did_you_mean(name, ENDPOINTS)})")
    known = ENDPOINTS[endpoint]
    data = value.get("data", {}) if known else {}  # endpoints without input ignore it, as GR00T's do
    if not isinstance(data, dict):
        raise RequestRefused(f"{endpoint}: data must be a map of {', '.join(known)}, got {_name(data)}")
    if endpoint == "get_action" and generations.is_flat(data):
        return endpoint, {"observation": generations.nested_observation(data), "options": None}, True
    for key in data:
        if key not in known:
            raise RequestRefused(f"{endpoint}: unexpected keyword argument {key[:64]!r}; data has {', '.join(known)}")
    if endpoint == "get_action" and "observation" not in data:
        raise RequestRefused("get_action: data.observation is missing")
    options = data.get("options")
    if options is not None and not isinstance(options, dict):
        raise RequestRefused(f"{endpoint}: options must be a map or nil, got {_name(options)}")
    return endpoint, data, False


def _same(given: Any, token: str) -> bool:
    return isinstance(given, str) and hmac.compare_digest(given.encode(), token.encode())


def _name(value: Any) -> str:
    return "nil" if value is None else type(value).__name__
