"""HTTP connections that are bounded, in number and in the time they may keep us waiting for a request.

uvicorn waits for ever for the rest of a request's head. Who opens connections and says nothing would take every file
descriptor of this process, and with them the run store and the broker.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

from so101.config.control_plane import HttpConfig


def bounded(settings: HttpConfig) -> type[H11Protocol]:
    """uvicorn's protocol within `settings`: for its `http`."""

    class BoundedProtocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._timer: asyncio.TimerHandle | None = None
            self._waited_for: object = None  # the last request that was answered when we looked; None: there was none
            if len(self.connections) > settings.max_connections:
                transport.abort()
            else:
                self._look_again()

        def connection_lost(self, error: Exception | None) -> None:
            if self._timer is not None:
                self._timer.cancel()  # it would keep all that was received until then
            super().connection_lost(error)

        def _look_again(self) -> None:
            self._timer = self.loop.call_later(settings.patience_s, self._look)

        def _look(self) -> None:
            """Every so often: has a request come since the last time, or is one being answered?"""
            if self.transport.is_closing():
                return
            answered = self.cycle is None or self.cycle.response_complete
            if answered and self._waited_for is self.cycle:
                self.transport.abort()
                return
            self._waited_for = self.cycle
            self._look_again()

    return BoundedProtocol
