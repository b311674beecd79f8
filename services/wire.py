"""Sockets as deploy.yaml describes them: what every service and client of ours uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proto.messages import Message
from proto.security import Role, Security, check_bind, load_security
from proto.sockets import Client, Publisher, Server, Subscriber
from so101.config import Config


def security_of(config: Config, role: Role) -> Security:
    """OPEN, or the keys of deploy.security.

    Raises:
        KeysError: curve is on and the keys are missing.
    """
    settings = config.deploy.security
    return load_security(settings.keys_dir if settings.curve else None, role)


def make_server(
    config: Config, socket: str, handlers: Mapping[type[Message], Callable[[Any], Message]], **options: Any
) -> Server:
    """The request server of `socket`, a key of deploy.sockets, bound.

    Raises:
        BindRefused: open to the network without keys.
        OSError: the address is taken.
    """
    endpoint, security = _to_bind(config, socket)
    limit = config.deploy.messages.max_bytes
    return Server(endpoint, handlers, name=socket, security=security, max_message_bytes=limit, **options)


def make_publisher(config: Config, socket: str, **options: Any) -> Publisher:
    """The publisher of `socket`, bound. Raises as `make_server`."""
    endpoint, security = _to_bind(config, socket)
    return Publisher(endpoint, security=security, heartbeat_s=config.deploy.messages.heartbeat_s, **options)


def make_client(config: Config, socket: str, *, timeout_s: float | None = None) -> Client:
    """A client of `socket`; waits `deploy.messages.timeout_s` for replies unless told otherwise."""
    messages = config.deploy.messages
    return Client(
        getattr(config.deploy.sockets, socket).connect,
        timeout_s=timeout_s or messages.timeout_s,
        security=security_of(config, "client"),
        max_message_bytes=messages.max_bytes,
    )


def make_subscriber(config: Config, socket: str, topics: Sequence[str] = ("",), **options: Any) -> Subscriber:
    """A subscriber to `socket`."""
    endpoint = getattr(config.deploy.sockets, socket).connect
    security = security_of(config, "client")
    limit = config.deploy.messages.max_bytes
    return Subscriber(endpoint, topics, security=security, max_message_bytes=limit, **options)


def _to_bind(config: Config, socket: str) -> tuple[str, Security]:
    endpoint = getattr(config.deploy.sockets, socket).bind
    security = security_of(config, "server")
    check_bind(endpoint, security, config.deploy.security.allow_open)
    return endpoint, security
