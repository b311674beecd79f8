"""Messages that every service answers or sends."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from proto.messages.base import Message

Name = Annotated[str, Meta(max_length=128)]
Text = Annotated[str, Meta(max_length=8192)]


class Ping(Message):
    """Are you there? Answered by `Pong` without touching the service."""


class Pong(Message):
    """Yes: which service, and for how long, s."""

    service: Name
    uptime_s: Annotated[float, Meta(ge=0)]


class Ok(Message):
    """Done; nothing to say."""


class ErrorReply(Message):
    """A request was not carried out. `code` is for programs (see `proto.errors.RemoteError`), `text` for people."""

    code: Name
    text: Text


class Heartbeat(Message):
    """A publisher with nothing to say is still there."""
