"""The policy server."""

from __future__ import annotations

import json
from typing import Any

from proto.errors import ProtoError, RemoteError
from services.control.models import Service
from services.control.sources.common import absent, patience_s
from services.policy.client import PolicyClient
from services.policy.options import read_token
from so101.config import Config

_STATS_LIMIT = 20_000  # characters of a policy server's counters


class PolicySource:
    """The policy server: what it has counted."""

    def __init__(self, client: PolicyClient) -> None:
        self._client = client

    def look(self) -> Service:
        """Its counters."""
        try:
            stats = self._client.stats()
        except RemoteError as error:  # a GR00T server of others is well and counts nothing
            return Service(running=True, problem="", values={"note": f"{self._client.endpoint}: {error}"[:500]})
        except (ProtoError, OSError):
            return absent(f"no policy server at {self._client.endpoint}; `./policy` starts it")
        return Service(running=True, problem="", values=as_json(stats))

    def close(self) -> None:
        self._client.close()


def policy_source(config: Config) -> PolicySource:
    """That of deploy.client, with the patience of a page."""
    client = config.deploy.client
    return PolicySource(
        PolicyClient(
            client.host,
            client.port,
            timeout_ms=round(patience_s(config) * 1000),
            api_token=read_token(client.api_token_file),
            wire=client.wire,
        )
    )


def as_json(stats: dict[str, Any]) -> dict[str, Any]:
    """Counters as JSON, rounded. A stranger may send anything under this name."""
    text = json.dumps(stats, default=str)[:_STATS_LIMIT]
    try:
        return json.loads(text, parse_float=lambda number: round(float(number), 1), parse_constant=str)
    except ValueError:
        return {"note": "more counters than fit here"}
