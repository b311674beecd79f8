"""Requests waiting for the policy: who was not served for longest comes first, the newest of each, none too old."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

from services.policy.requests import Request, RequestRefused

_CLIENTS_KNOWN = 4096  # whose last turn is remembered


class FairQueue:
    """Filled by the thread of the socket, emptied by that of the policy.

    A client has at most a reset and a get_action here, in this order: what it asks takes the place of what it asked
    before and no longer waits for.
    """

    def __init__(self, max_requests: int, max_bytes: int) -> None:
        self._max_requests, self._max_bytes = max_requests, max_bytes
        self._clients: dict[bytes, list[Request]] = {}
        self._since: OrderedDict[bytes, float] = OrderedDict()  # last turn of a client, or when it first asked
        self._ready = threading.Condition()
        self._closed = False
        self.length = self.bytes = 0

    def put(self, request: Request) -> list[Request]:
        """Add `request`; returns those it takes the place of.

        Raises:
            RequestRefused: the queue is full, or closed.
        """
        with self._ready:
            if self._closed:
                raise RequestRefused("the server is stopping")
            waiting = self._clients.get(request.client, [])
            replaced = [other for other in waiting if request.endpoint in (other.endpoint, "reset")]
            length = self.length + 1 - len(replaced)
            size = self.bytes + request.size - sum(other.size for other in replaced)
            if length > self._max_requests or size > self._max_bytes:
                raise RequestRefused(f"the server is busy: {self.length} requests ({self.bytes} bytes) wait already")
            self._clients[request.client] = [other for other in waiting if other not in replaced] + [request]
            self.length, self.bytes = length, size
            self._since.setdefault(request.client, request.arrived)
            if len(self._since) > _CLIENTS_KNOWN:
                self._since.popitem(last=False)
            self._ready.notify()
            return replaced

    def get(self) -> Request | None:
        """The next request, waited for; None once the queue is closed."""
        with self._ready:
            self._ready.wait_for(lambda: self._clients or self._closed)
            if self._closed:
                return None
            client = min(self._clients, key=lambda one: self._since.get(one, self._clients[one][0].arrived))
            request = self._clients[client][0]
            self._remove(request)
            self._since[client] = time.monotonic()
            self._since.move_to_end(client)
            return request

    def expire(self, max_age_s: float) -> list[Request]:
        """Take out requests older than `max_age_s`."""
        oldest = time.monotonic() - max_age_s
        with self._ready:
            expired = [r for waiting in self._clients.values() for r in waiting if r.arrived < oldest]
            for request in expired:
                self._remove(request)
        return expired

    def close(self) -> list[Request]:
        """Let `get` end; returns what still waited."""
        with self._ready:
            self._closed = True
            left = [request for waiting in self._clients.values() for request in waiting]
            self._clients.clear()
            self.length = self.bytes = 0
            self._ready.notify_all()
        return left

    def _remove(self, request: Request) -> None:
        waiting = self._clients[request.client]
        waiting[:] = [other for other in waiting if other is not request]
        if not waiting:
            del self._clients[request.client]
        self.length -= 1
        self.bytes -= request.size
