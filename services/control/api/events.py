"""/api/events: the live state as server-sent events.

Each event carries one topic: ``event: change``, ``data: {"topic", "value"}``; value null: gone. ``event: reset`` says
that everything is sent anew, and which topics there are. A browser that comes back with Last-Event-ID gets what it
missed, or everything.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.responses import StreamingResponse

from services.control.api.common import Plane, errors
from services.control.errors import TooMany
from services.control.hub import News
from services.control.plane import ControlPlane

router = APIRouter(prefix="/api", tags=["events"])


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={**errors(422, 429), 200: {"description": "Server-sent events.", "content": {"text/event-stream": {}}}},
)
async def get_events(
    plane: Plane, last_event_id: Annotated[str | None, Header(max_length=200)] = None
) -> StreamingResponse:
    """Everything that changes, as it changes."""
    limit = plane.settings.events.max_clients
    if plane.browsers >= limit:
        raise TooMany(f"{limit} browsers watch already (deploy.control_plane.events.max_clients); close one")
    return StreamingResponse(
        _stream(plane, plane.hub.number_of(last_event_id)),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _stream(plane: ControlPlane, seen: int) -> AsyncIterator[bytes]:
    events = plane.settings.events
    plane.browsers += 1
    silent_s = 0.0
    try:
        yield b"retry: 1000\n\n"
        while not plane.closing:
            news = plane.hub.news(seen)
            if news.changes:
                yield _written(plane.hub.epoch, news)  # waits while the browser reads slowly; meanwhile topics change
                seen, silent_s = news.changes[-1].number, 0.0
            elif silent_s >= events.heartbeat_s:
                yield b": still here\n\n"
                silent_s = 0.0
            await asyncio.sleep(events.interval_s)
            silent_s += events.interval_s
    finally:
        plane.browsers -= 1


def _written(epoch: str, news: News) -> bytes:
    topics = json.dumps({"topics": [change.topic for change in news.changes]})
    lines = [f"event: reset\ndata: {topics}\n\n"] if news.anew else []
    for number, topic, value in news.changes:
        data = json.dumps({"topic": topic, "value": value}, separators=(",", ":"))
        lines.append(f"id: {epoch}-{number}\nevent: change\ndata: {data}\n\n")
    return "".join(lines).encode(errors="replace")
