"""The exception tree of the wire."""

from __future__ import annotations


class ProtoError(Exception):
    """Root of everything that a peer, a network or a key file can cause."""


class BadMessage(ProtoError):
    """Bytes that are no message of ours."""


class UnknownVersion(BadMessage):
    """Another protocol version."""


class UnknownType(BadMessage):
    """A message type that this side does not know, or not here."""


class TooLarge(BadMessage):
    """More bytes, frames or elements than allowed."""


class RequestTimeout(ProtoError):
    """No reply in time. The request may or may not have been carried out."""


class RemoteError(ProtoError):
    """The peer answered with an error.

    Attributes:
        code: "bad_message", "unknown_version", "unknown_type", "too_large", "failed", or one of the service's own.
        text: what the peer said.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


class BindRefused(ProtoError):
    """A socket would be open to the network without any authentication."""


class KeysError(ProtoError):
    """CURVE keys are missing, unreadable or not keys."""
