"""Is a service well? One check a kind of socket; the supervisor and the containers' health checks ask the same ones."""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Protocol


class HealthCheck(Protocol):
    """Looks at one service from outside."""

    def problem(self, timeout_s: float) -> str | None:
        """What is wrong, in words, or None when the service answered as it should within `timeout_s`."""


@dataclass(frozen=True)
class PingCheck:
    """A `proto.sockets.Server` that answers Ping."""

    endpoint: str
    security: object = None  # proto.security.Security; None: open

    def problem(self, timeout_s: float) -> str | None:
        from proto.errors import ProtoError
        from proto.messages.common import Ping
        from proto.security import OPEN
        from proto.sockets import Client

        try:
            with Client(self.endpoint, timeout_s=timeout_s, security=self.security or OPEN) as client:
                client.request(Ping())
        except ProtoError as error:
            return f"no answer to ping at {self.endpoint}: {error}"
        return None


@dataclass(frozen=True)
class PublisherCheck:
    """A `proto.sockets.Publisher`: anything heard, a heartbeat included, is a good sign."""

    endpoint: str
    security: object = None

    def problem(self, timeout_s: float) -> str | None:
        from proto.errors import ProtoError
        from proto.security import OPEN
        from proto.sockets import Subscriber

        end = time.monotonic() + timeout_s
        try:
            with Subscriber(self.endpoint, security=self.security or OPEN) as subscriber:
                began = time.monotonic()
                while (left_s := end - time.monotonic()) > 0:
                    subscriber.receive(min(left_s, 0.1))
                    if subscriber.age_s < time.monotonic() - began:
                        return None
        except ProtoError as error:
            return f"{self.endpoint}: {error}"
        return f"nothing heard from {self.endpoint} for {timeout_s:g} s"


@dataclass(frozen=True)
class PolicyCheck:
    """A policy server on GR00T's wire; that it refuses us for want of a token is a good sign too."""

    host: str
    port: int

    def problem(self, timeout_s: float) -> str | None:
        from proto.errors import ProtoError, RemoteError
        from services.policy.client import PolicyClient

        try:
            with PolicyClient(self.host, self.port, timeout_ms=round(1000 * timeout_s)) as client:
                return None if client.ping() else f"no answer to ping at {client.endpoint}"
        except RemoteError:
            return None
        except ProtoError as error:
            return f"{self.host}:{self.port}: {error}"


@dataclass(frozen=True)
class HttpCheck:
    """A page that answers GET, be it to ask for a token."""

    url: str

    def problem(self, timeout_s: float) -> str | None:
        try:
            with urllib.request.urlopen(self.url, timeout=timeout_s):
                return None
        except urllib.error.HTTPError as error:
            return f"GET {self.url}: {error}" if error.code >= 500 else None
        except (OSError, ValueError) as error:  # URLError is an OSError
            return f"GET {self.url}: {getattr(error, 'reason', None) or error}"


@dataclass(frozen=True)
class TcpCheck:
    """Something that accepts connections."""

    host: str
    port: int

    def problem(self, timeout_s: float) -> str | None:
        try:
            with socket.create_connection((self.host, self.port), timeout=timeout_s):
                return None
        except OSError as error:
            return f"{self.host}:{self.port} takes no connection: {error.strerror or error}"
