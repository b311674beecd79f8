"""The messages, one module a service. Importing this package registers them all for decoding."""

from proto.messages import camera, common, driver, rig, work  # noqa: F401
from proto.messages.base import Message, message_type

__all__ = ["Message", "message_type"]
