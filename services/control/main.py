"""`./twin serve control`: the page and the HTTP API, until it is told to stop."""

from __future__ import annotations

import argparse
import logging
import socket
import threading
from pathlib import Path

from services.control.auth import Gate, check_exposed, make_token, read_token
from so101.config import Config
from so101.errors import So101Error

log = logging.getLogger(__name__)


class AlreadyRunning(So101Error):
    """Another control plane uses the state folder, or the address is taken."""


def main(config: Config, arguments: list[str]) -> int:
    """Serve. `arguments` are those of the command line that are not settings."""
    options = _options(arguments)
    settings = config.deploy.control_plane
    token_file = Path(settings.http.token_file)
    if options.make_token:
        print(f"{token_file.resolve()}: {make_token(token_file)}")
        return 0
    token = read_token(token_file)
    check_exposed(config, token)
    return _serve(config, Gate(token, settings.http.allowed_hosts))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./twin serve control", description=__doc__)
    parser.add_argument("--make-token", action="store_true", help="write a new token to the token file and end")
    return parser.parse_args(arguments)


def _serve(config: Config, gate: Gate) -> int:
    import uvicorn

    from proto.stopping import stop_on_signals
    from services.control.app import create_app
    from services.control.connections import bounded
    from services.control.locks import hold_folder
    from services.control.plane import ControlPlane

    http = config.deploy.control_plane.http
    with hold_folder(Path(config.deploy.control_plane.state_dir)), _bind(http.host, http.port) as listening:
        with ControlPlane(config) as plane, stop_on_signals() as stop:
            server = uvicorn.Server(
                uvicorn.Config(
                    create_app(plane, gate),
                    http=bounded(http),
                    log_config=None,
                    access_log=False,
                    server_header=False,
                    timeout_graceful_shutdown=2,
                    lifespan="off",
                )
            )
            thread = threading.Thread(target=server.run, args=([listening],), name="http", daemon=True)
            thread.start()
            host, port = listening.getsockname()[:2]
            log.info("page and API at http://%s:%d%s", f"[{host}]" if ":" in host else host, port, _hint(gate))
            while thread.is_alive() and not stop.wait(0.2):
                pass
            plane.closing = server.should_exit = True
            thread.join()
            return stop.exit_code if stop.is_set() else 1


def _hint(gate: Gate) -> str:
    return " (token needed)" if gate.needs_token else ""


def _bind(host: str, port: int) -> socket.socket:
    """A listening socket, bound before anything else starts.

    Raises:
        AlreadyRunning: the address is taken, or not of this machine.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)  # who connects from now on is served a moment later
    except OSError as error:
        raise AlreadyRunning(
            f"cannot listen on {host}:{port} (deploy.control_plane.http): {error.strerror}; another program may use "
            "it, `--set deploy.control_plane.http.port=8001` takes another port"
        ) from None
    return listening
