"""Who may use the API: a bearer token, the name we were asked under, and nothing on behalf of other sites.

- Off loopback a token is needed. On loopback it is used where the token file exists.
- `Host` must be an address, localhost, this machine's name or one that was allowed: a stranger's domain that was made
  to point here (DNS rebinding) is turned away.
- Requests that change something must come as JSON or with the header `X-Twin`, and from our own page or no page: pages
  of other sites can send neither unless we agree, which we never do (CSRF).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import secrets
import socket
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from proto.errors import BindRefused
from proto.security import is_local
from services.control.errors import Forbidden, Unauthorized
from so101.config import Config
from so101.files import write_text

TOKEN_VARIABLE = "SO101_CONTROL_TOKEN"
COOKIE = "twin_session"
MIN_LENGTH = 16
_SAFE = ("GET", "HEAD", "OPTIONS")


def read_token(path: Path) -> str | None:
    """The token: of the environment, else of the file; None when there is neither.

    Raises:
        BindRefused: it is too short to be one, or cannot be read.
    """
    token, where = os.environ.get(TOKEN_VARIABLE, "").strip(), TOKEN_VARIABLE
    if not token:
        where = str(path)
        try:
            token = path.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise BindRefused(f"{path}: the token cannot be read ({error})") from None
    if len(token) < MIN_LENGTH or not token.isascii() or not token.isprintable():
        raise BindRefused(
            f"{where}: a token has at least {MIN_LENGTH} plain characters, this has {len(token)}; "
            "`./twin serve control --make-token` writes a good one"
        )
    return token


def make_token(path: Path) -> str:
    """A new random token, written to `path` for its owner alone."""
    token = secrets.token_urlsafe(32)
    mask = os.umask(0o077)
    try:
        write_text(path, token + "\n")
    finally:
        os.umask(mask)
    return token


def check_exposed(config: Config, token: str | None) -> None:
    """Refuse to listen where others can reach us and nobody is asked who he is.

    Raises:
        BindRefused: says the three ways out.
    """
    host, security = config.deploy.control_plane.http.host, config.deploy.security
    if token is not None or security.allow_open or is_local(f"tcp://[{host}]" if ":" in host else f"tcp://{host}"):
        return
    raise BindRefused(
        f"{host} can be reached from the network, and without a token anyone there could start runs and move the arm. "
        f"Make one (`./twin serve control --make-token`), or set {TOKEN_VARIABLE}, or bind to 127.0.0.1 "
        "(deploy.control_plane.http.host), or, where that is meant, set deploy.security.allow_open: true"
    )


class Gate:
    """Looks at a request before anything else does."""

    def __init__(self, token: str | None, allowed_hosts: Iterable[str] = ()) -> None:
        self._token = token.encode() if token is not None else None
        self._hosts = {"localhost", socket.gethostname().lower(), *(host.lower() for host in allowed_hosts)}

    @property
    def needs_token(self) -> bool:
        return self._token is not None

    @property
    def cookie(self) -> str:
        """What a browser shows after it logged in; does not tell the token, and ends with it."""
        return hmac.new(self._token or b"", b"session of the control page", hashlib.sha256).hexdigest()

    def check_origin(self, request: HTTPConnection, method: str) -> None:
        """Raise Forbidden for a strange name or another site's page."""
        host = request.headers.get("host", "")
        name = _name(host)
        if name not in self._hosts and not _is_address(name):
            raise Forbidden(
                f"this server is not called {name[:80]!r}; if it is, add that name to "
                "deploy.control_plane.http.allowed_hosts"
            )
        if method in _SAFE:
            return
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" and "x-twin" not in request.headers:
            raise Forbidden("requests that change something are sent as application/json, or with the header X-Twin: 1")
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            raise Forbidden("a page of another site may not do this")

    def check_token(self, request: HTTPConnection) -> None:
        """Raise Unauthorized unless the request shows the token, or a cookie that followed from it."""
        if self._token is None:
            return
        kind, _, shown = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.is_token(shown.strip()):
            return
        if _equal(request.cookies.get(COOKIE, "").encode(errors="replace"), self.cookie.encode()):
            return
        raise Unauthorized("a token is needed: send it as `Authorization: Bearer TOKEN`, or log in on the page")

    def is_token(self, text: str) -> bool:
        """Whether `text` is the token; takes as long whatever it is."""
        return self._token is not None and _equal(text.encode(errors="replace"), self._token)


def _equal(left: bytes, right: bytes) -> bool:
    return hmac.compare_digest(hashlib.sha256(left).digest(), hashlib.sha256(right).digest())


def _name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
