"""The web application: the API, the page, and what stands before both."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import anyio
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.control.api import events, login, resources, runs
from services.control.auth import Gate
from services.control.errors import ControlError, TooLarge, TooSlow
from services.control.plane import ControlPlane
from so101.config.control_plane import HttpConfig
from so101.errors import So101Error

log = logging.getLogger(__name__)

PAGE = Path(__file__).parent / "page"
_OPEN_PATHS = ("/", "/api/login", "/api/health")  # and /page/: for browsers before the login, and for supervisors
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "media-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",  # a page of before an update does not fit the API of after it
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_LOG_EVERY_S = 10.0
_CODES = {400: "bad_request", 404: "not_found", 405: "not_allowed", 413: "too_large", 416: "no_such_range"}


def create_app(plane: ControlPlane, gate: Gate) -> FastAPI:
    """The application over `plane`; `gate` says who may use it."""
    app = FastAPI(
        title="SO-101 twin",
        version="1",
        description="Runs of the demo pipeline, and what goes on around them. Errors: `{error: {code, text}}`.",
        docs_url=None,  # the usual pages load scripts from elsewhere
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    app.state.plane, app.state.gate = plane, gate
    for module in (runs, resources, events, login):
        app.include_router(module.router)
    app.mount("/page", StaticFiles(directory=PAGE), name="page")

    @app.get("/", include_in_schema=False)
    def index() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    app.add_exception_handler(ControlError, _control_error)
    app.add_exception_handler(So101Error, _settings_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_middleware(Guard, gate=gate, http=plane.settings.http)
    return app


class Guard:
    """Asks the gate, bounds bodies, adds security headers, and turns what went wrong unforeseen into an answer."""

    def __init__(self, app: ASGIApp, gate: Gate, http: HttpConfig) -> None:
        self._app, self._gate = app, gate
        self._limit, self._patience_s = http.max_body_bytes, http.patience_s
        self._refused, self._logged_s = 0, -_LOG_EVERY_S

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if request.method not in ("GET", "HEAD"):
                    log.info("%s %s: %d", request.method, scope["path"], message["status"])
            await send(message)

        request = Request(scope, receive)
        try:
            self._gate.check_origin(request, request.method)
            if not self._is_open(scope["path"]):
                self._gate.check_token(request)
            body = await self._body(request)
        except ClientDisconnect:
            return
        except ControlError as error:
            self._log_refused(request, error)
            await _control_error(request, error)(scope, receive, send_with_headers)
            return
        try:
            await self._app(scope, body, send_with_headers)
        except Exception as error:
            log.exception("%s %s", request.method, scope["path"])
            if begun:
                raise
            reply = _reply(500, "failed", f"the program failed: {type(error).__name__}; its log says where")
            await reply(scope, receive, send_with_headers)

    def _log_refused(self, request: Request, error: ControlError) -> None:
        """The first, then one line a _LOG_EVERY_S: who guesses tokens must not fill the disk."""
        self._refused += 1
        if time.monotonic() - self._logged_s < _LOG_EVERY_S:
            return
        self._logged_s = time.monotonic()
        who = request.client.host if request.client else "somebody"
        path = request.url.path[:200].encode("unicode_escape").decode()
        log.warning("refused, %d in all; the last: %s %s from %s: %s", self._refused, request.method, path, who, error)

    def _is_open(self, path: str) -> bool:
        return path in _OPEN_PATHS or path.startswith("/page/")

    async def _body(self, request: Request) -> Receive:
        """The body, read whole; most requests have none."""
        if request.method in ("GET", "HEAD"):
            return request.receive
        content = b""
        try:
            with anyio.fail_after(self._patience_s):
                async for part in request.stream():
                    content += part
                    if len(content) > self._limit:
                        raise TooLarge(
                            f"a request has at most {self._limit} bytes (deploy.control_plane.http.max_body_bytes)"
                        )
        except TimeoutError:
            raise TooSlow(
                f"the request did not arrive within {self._patience_s:g} s (deploy.control_plane.http.patience_s)"
            ) from None
        done = False

        async def receive() -> Message:
            nonlocal done
            if done:
                return await request.receive()
            done = True
            return {"type": "http.request", "body": content, "more_body": False}

        return receive


def _reply(status: int, code: str, text: str) -> JSONResponse:
    clean = text.encode(errors="replace").decode()
    return JSONResponse({"error": {"code": code, "text": clean}}, status)


def _control_error(request: Request, error: ControlError) -> JSONResponse:
    reply = _reply(error.status, error.code, str(error))
    if error.status == 401:
        reply.headers["WWW-Authenticate"] = "Bearer"
    return reply


def _settings_error(request: Request, error: So101Error) -> JSONResponse:
    """Wrong settings, recordings, folders: the text is that of the command line."""
    return _reply(422, "invalid", str(error))


def _validation_error(request: Request, error: RequestValidationError) -> JSONResponse:
    faults = []
    for fault in error.errors():
        where = ".".join(str(part) for part in fault["loc"] if part != "body") or "body"
        faults.append(f"{where}: {fault['msg'][0].lower()}{fault['msg'][1:]}")
    return _reply(422, "invalid", "\n".join(faults))


def _http_error(request: Request, error: HTTPException) -> JSONResponse:
    reply = _reply(error.status_code, _CODES.get(error.status_code, "refused"), f"{request.url.path}: {error.detail}")
    reply.headers.update(error.headers or {})
    return reply
