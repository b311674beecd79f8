"""The policy server and its client: GR00T's protocol on port 5555 (docs/policy.md)."""

from services.policy.client import PolicyClient
from services.policy.server import PolicyServer

__all__ = ["PolicyClient", "PolicyServer"]
