"""A show as a page: pictures as one endless multipart JPEG, everything else as JSON. Loopback only, no other sites.

Pictures are drawn in the thread that runs the show; the threads that answer browsers only hand them out.
"""

from __future__ import annotations

import io
import json
import math
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from so101.config import Config
from so101.errors import So101Error
from so101.families.render import ORBIT, FamilyRenderer, Orbit
from so101.families.viewer import SPEEDS, Frame, Show, Status, Wish

_FILES = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
_FOLDER = Path(__file__).parent / "page"
_BOUNDARY = "picture"
_MAX_BODY = 4096
_WAIT_S = 1.0
_POLICY = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


class ViewerFault(So101Error):
    """The page cannot be served."""


class PageFront:
    """Serves one show until it is closed; a `Front`.

    Args:
        port: instead of deploy.viewer.port.

    Attributes:
        url: of the page.

    Raises:
        ViewerFault: the port is taken.
        SimulationError: no OpenGL context.
    """

    def __init__(self, show: Show, config: Config, port: int | None = None) -> None:
        self._show, self._settings = show, config.deploy.viewer
        self._renderer = FamilyRenderer(show.task.family, self._settings.width_px, self._settings.height_px)
        self.cameras = (ORBIT, *self._renderer.cameras)
        self._camera, self._orbit = ORBIT, Orbit()
        self._lock = threading.Condition()
        self._wishes: list[Wish] = []
        self._jpeg, self._number, self._viewers = b"", 0, 0
        self._state: dict[str, Any] = {}
        self._drawn_s, self._said_s, self._looks_changed = -math.inf, -math.inf, True
        self.open = True
        port = self._settings.port if port is None else port
        try:
            self._server = _Server((self._settings.host, port), _Handler, self)
        except OSError as error:
            self._renderer.close()
            raise ViewerFault(
                f"the page cannot be served at {self._settings.host}:{port} ({error.strerror}); another viewer may run "
                "there: give another --port, 0 for any free one"
            ) from None
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        self.url = f"http://{host}:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, name="viewer page", daemon=True)
        self._thread.start()

    def wishes(self) -> list[Wish]:
        with self._lock:
            wishes, self._wishes = self._wishes, []
            self._looks_changed |= bool(wishes)
        return wishes

    def show(self, frame: Callable[[], Frame], status: Status) -> None:
        now = time.monotonic()
        still = (status.paused or status.over) and not self._looks_changed
        fps = self._settings.idle_fps if still or not self._viewers else self._settings.max_fps
        if now - self._drawn_s < 1 / fps:
            return
        self._drawn_s, self._looks_changed = now, False
        seen = frame()
        jpeg = self._draw(seen) if self._viewers or not self._jpeg else self._jpeg
        state = self._describe(seen, status)
        with self._lock:
            self._jpeg, self._state, self._number = jpeg, state, self._number + 1
            self._lock.notify_all()

    def close(self) -> None:
        if not self.open:
            return
        with self._lock:
            self.open = False
            self._lock.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._renderer.close()

    def _draw(self, seen: Frame) -> bytes:
        from PIL import Image  # a part of matplotlib's installation

        with self._lock:
            camera = self._orbit if self._camera == ORBIT else self._camera
        buffer = io.BytesIO()
        picture = self._renderer.draw(seen.qpos, camera, marks=seen.marks)
        Image.fromarray(picture).save(buffer, "JPEG", quality=self._settings.jpeg_quality)
        return buffer.getvalue()

    def _describe(self, seen: Frame, status: Status) -> dict[str, Any]:
        show = self._show
        model = self._renderer.model
        return {
            "title": show.title,
            "task": show.task.name,
            "language": show.task.language,
            "cameras": list(self.cameras),
            "camera": self._camera,
            "paused": status.paused,
            "over": status.over,
            "speed": status.speed,
            "speeds": list(SPEEDS),
            "seed": seen.seed,
            "note": seen.note,
            "keys": dict(show.keys),
            "readouts": [list(line) for line in seen.readouts],
            "drivable": show.drivable,
            "joints": [
                {"name": name, "q": round(float(q), 4), "command": round(float(command), 4), "range": list(limits)}
                for name, q, command, limits in zip(
                    show.task.family.config.robot.joint_names,
                    seen.qpos,
                    seen.command_rad,
                    np.round(model.actuator_ctrlrange, 4).tolist(),
                    strict=False,
                )
            ],
        }

    # ---- called by the threads that answer browsers --------------------------------------------------------------

    def next_picture(self, after: int) -> tuple[int, bytes]:
        """The picture after number `after`, or the same number and nothing when none comes in time."""
        with self._lock:
            self._lock.wait_for(lambda: self._jpeg and self._number > after or not self.open, _WAIT_S)
            return (self._number, self._jpeg) if self._number > after else (after, b"")

    def next_state(self, after: int) -> dict[str, Any]:
        """What is shown, once it is newer than number `after` or nothing comes in time."""
        with self._lock:
            self._lock.wait_for(lambda: self._number > after or not self.open, _WAIT_S)
            return {**self._state, "number": self._number, "open": self.open}

    def watched(self, more: int) -> None:
        """A browser began (1) or ended (-1) to watch."""
        with self._lock:
            self._viewers += more
            self._looks_changed = True

    def ask(self, message: Any) -> str:
        """Carry a browser's message out; returns what is wrong with it, "" when nothing is."""
        if not isinstance(message, dict) or len(message) != 1:
            return "one wish at a time: {kind: value}"
        ((kind, value),) = message.items()
        with self._lock:
            self._looks_changed = True
            if kind == "camera" and value in self.cameras:
                self._camera = value
            elif kind == "orbit" and (numbers := _numbers(value, 2)):
                self._orbit = self._orbit.turned(*numbers)
            elif kind == "zoom" and (numbers := _numbers([value], 1)) and numbers[0] > 0:
                self._orbit = self._orbit.zoomed(numbers[0])
            elif kind == "shift" and (numbers := _numbers(value, 2)):
                self._orbit = self._orbit.moved(*numbers)
            elif kind in ("pause", "step", "quit"):
                self._wishes.append(Wish(kind))
            elif kind == "restart" and (value is None or (type(value) is int and 0 <= value < 2**31)):
                self._wishes.append(Wish(kind, value))
            elif kind == "speed" and value in SPEEDS:
                self._wishes.append(Wish(kind, float(value)))
            elif kind == "key" and value in self._show.keys:
                self._wishes.append(Wish(kind, value))
            elif kind == "drive" and self._show.drivable and (numbers := _numbers(value, 6)):
                self._wishes.append(Wish(kind, numbers))
            else:
                return f"{str(kind)[:40]}: not known, or not with this value"
        return ""


def _numbers(value: Any, count: int) -> list[float] | None:
    good = isinstance(value, list) and len(value) == count
    if not good or not all(type(x) in (int, float) and math.isfinite(x) and abs(x) < 1e6 for x in value):
        return None
    return [float(x) for x in value]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], handler: type, front: PageFront) -> None:
        if ":" in address[0]:
            import socket

            self.address_family = socket.AF_INET6
        self.front = front
        super().__init__(address, handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        after = int(query) if query.isdigit() else 0
        front = self.server.front
        if not self._from_here():
            return
        if path in _FILES:
            name, kind = _FILES[path]
            self._answer(HTTPStatus.OK, (_FOLDER / name).read_bytes(), kind)
        elif path == "/state":
            self._answer(HTTPStatus.OK, json.dumps(front.next_state(after)).encode(), "application/json")
        elif path == "/picture.jpg":
            self._answer(HTTPStatus.OK, front.next_picture(0)[1], "image/jpeg")
        elif path == "/stream":
            self._stream()
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"no such page", "text/plain")

    def do_POST(self) -> None:
        if not self._from_here():
            return
        size = self.headers.get("Content-Length", "")
        if self.path != "/wish" or not size.isdigit() or int(size) > _MAX_BODY:
            self.close_connection = True
            self._answer(HTTPStatus.BAD_REQUEST, b"POST /wish with a short JSON body", "text/plain")
            return
        body = self.rfile.read(int(size))
        try:
            fault = self.server.front.ask(json.loads(body))
        except (ValueError, RecursionError):
            fault = "not JSON"
        status = HTTPStatus.BAD_REQUEST if fault else HTTPStatus.OK
        self._answer(status, json.dumps({"fault": fault}).encode(), "application/json")

    def _from_here(self) -> bool:
        """Asked under a loopback name (else a stranger's domain may point here), and not by another site's page."""
        name = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        origin = self.headers.get("Origin")
        own = origin is None or origin == f"http://{self.headers.get('Host')}"
        if name in ("127.0.0.1", "localhost", "::1") and own:
            return True
        self.close_connection = True
        self._answer(HTTPStatus.FORBIDDEN, b"only for pages of this server, under a loopback name", "text/plain")
        return False

    def _stream(self) -> None:
        front, number = self.server.front, 0
        self.close_connection = True
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", f"multipart/x-mixed-replace; boundary={_BOUNDARY}")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        front.watched(1)
        try:
            while front.open:
                number, jpeg = front.next_picture(number)
                if not jpeg:
                    continue
                head = f"--{_BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(jpeg)}\r\n\r\n"
                self.wfile.write(head.encode() + jpeg + b"\r\n")
        except OSError:  # the browser went away
            pass
        finally:
            front.watched(-1)

    def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8" if kind.startswith("text/") else kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", _POLICY)
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass

    def log_message(self, *_: Any) -> None:
        """Quiet."""
