"""Who may talk to a socket: nobody is asked (OPEN), or CURVE keys decide.

A keys folder holds one pair for the sockets that bind (``server``), one for those that connect (``client``), and the
public keys of the clients that are let in (``authorized/``). CURVE (ZeroMQ RFC 26) encrypts and proves the server to
the client; the authentication protocol (RFC 27) proves the client to the server.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import parse_monitor_message

from proto.errors import BindRefused, KeysError

log = logging.getLogger(__name__)

Role = Literal["server", "client"]
AUTHORIZED = "authorized"
_DOMAIN = "so101"  # of ZeroMQ's authentication protocol
_FAILURES = {
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "its key is not authorized",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "wrong server key, or no CURVE on one side",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "the handshake broke off",
}
_authenticators: dict[tuple[zmq.Context, Path], ThreadAuthenticator] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class Security:
    """How a socket is secured; apply before it binds or connects.

    Attributes:
        role: "server" for sockets that bind.
        keys: folder of keys; None for an open socket.
    """

    role: Role = "server"
    keys: Path | None = None
    _public: bytes = field(default=b"", repr=False)
    _secret: bytes = field(default=b"", repr=False)
    _server_public: bytes = field(default=b"", repr=False)

    def apply(self, socket: zmq.Socket) -> None:
        """Set the CURVE options of `socket`; nothing for an open one."""
        if self.keys is None:
            return
        socket.curve_publickey, socket.curve_secretkey = self._public, self._secret
        if self.role == "server":
            _start_authenticator(socket.context, self.keys / AUTHORIZED)
            socket.zap_domain = _DOMAIN.encode()
            socket.curve_server = True
        else:
            socket.curve_serverkey = self._server_public


OPEN = Security()


def load_security(keys: Path | str | None, role: Role) -> Security:
    """Security with the keys in folder `keys`; open when None.

    Raises:
        KeysError: a key file is missing or is none.
    """
    if keys is None:
        return Security(role)
    folder = Path(keys)
    public, secret = _read_key(folder / f"{role}.key_secret", need_secret=True)
    server_public = _read_key(folder / "server.key")[0] if role == "client" else b""
    return Security(role, folder, public, secret, server_public)


def _read_key(path: Path, need_secret: bool = False) -> tuple[bytes, bytes]:
    try:
        public, secret = zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise KeysError(f"{path}: no usable CURVE key ({error}); `./twin keys` makes a folder of keys") from None
    if need_secret and not secret:
        raise KeysError(f"{path}: holds no secret key; `./twin keys` makes a folder of keys")
    return public, secret or b""


def make_keys(folder: Path | str) -> None:
    """Make the pairs of server and client in `folder`, readable for its owner alone, and let the client in.

    Raises:
        KeysError: there are keys already.
    """
    folder = Path(folder)
    existing = sorted(path.name for path in folder.glob("*.key_secret"))
    if existing:
        raise KeysError(
            f"{folder}: holds {', '.join(existing)} already; programs use them. Remove the folder for new ones"
        )
    (folder / AUTHORIZED).mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    mask = os.umask(0o077)
    try:
        for role in ("server", "client"):
            zmq.auth.create_certificates(folder, role)
    finally:
        os.umask(mask)
    (folder / AUTHORIZED / "client.key").write_bytes((folder / "client.key").read_bytes())


def _start_authenticator(context: zmq.Context, authorized: Path) -> None:
    """One thread a context answers for all its sockets; ZeroMQ allows no second."""
    with _lock:
        for (other, folder), running in list(_authenticators.items()):
            if other.closed:
                del _authenticators[other, folder]
            elif other is context:
                if folder != authorized:
                    raise KeysError(
                        f"{authorized}: this process lets in the keys of {folder} already; use one keys folder"
                    )
                if running.is_alive():
                    return
                del _authenticators[other, folder]
        authenticator = ThreadAuthenticator(context, log=log)
        authenticator.start()
        authenticator.configure_curve(domain=_DOMAIN, location=str(authorized))
        _authenticators[context, authorized] = authenticator


def check_bind(endpoint: str, security: Security, allow_open: bool) -> None:
    """Refuse an endpoint that others can reach and nobody guards.

    Raises:
        BindRefused: neither loopback nor ipc, no keys, and not allowed in so many words.
    """
    if allow_open or security.keys is not None or is_local(endpoint):
        return
    raise BindRefused(
        f"{endpoint} can be reached from the network, and without keys anyone there could use it. Make keys "
        "(`./twin keys`) and set deploy.security.curve: true, or bind to 127.0.0.1, or, where that is meant, set "
        "deploy.security.allow_open: true"
    )


def is_local(endpoint: str) -> bool:
    """Whether only this machine reaches `endpoint` (a ZMQ endpoint or a host name)."""
    if endpoint.startswith(("ipc://", "inproc://")):
        return True
    host = urllib.parse.urlsplit(endpoint if "://" in endpoint else f"tcp://{endpoint}").hostname
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


class HandshakeWatch:
    """Counts peers that were refused at a socket, and logs them: the first, then one line a `LOG_EVERY_S`.

    Attributes:
        socket: to poll; readable when there is something to `read`.
        refused: handshakes that failed.
        reason: of the last of them.
    """

    LOG_EVERY_S = 10.0  # a refused peer tries again several times a second

    def __init__(self, socket: zmq.Socket, name: str) -> None:
        self._name, self._watched = name, socket
        self._logged_at, self._logged = -self.LOG_EVERY_S, 0
        self.socket = socket.get_monitor_socket(sum(_FAILURES))
        self.refused = 0
        self.reason = ""

    def read(self) -> None:
        """Take all events that wait."""
        while self.socket.poll(0):
            event = parse_monitor_message(self.socket.recv_multipart())
            if event["event"] in _FAILURES:
                self.refused += 1
                self.reason = _FAILURES[event["event"]]
        now = time.monotonic()
        if self.refused > self._logged and now - self._logged_at >= self.LOG_EVERY_S:
            log.warning("%s: handshake refused, %d in all (%s)", self._name, self.refused, self.reason)
            self._logged, self._logged_at = self.refused, now

    def close(self) -> None:
        self._watched.disable_monitor()
        self.socket.close(linger=0)
