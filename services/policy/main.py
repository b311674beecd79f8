"""The policy server as a process."""

from __future__ import annotations

import logging
import sys

from proto.errors import BindRefused
from proto.security import is_local
from proto.stopping import stop_on_signals
from services.policy.options import ALL_POLICIES, Parser, add_policy_options, apply
from services.policy.server import PolicyServer
from so101.config import Config
from so101.policies import PolicyOptions, make_policy

log = logging.getLogger(__name__)


def main(config: Config, arguments: list[str]) -> int:
    """`./twin serve policy`; returns the exit code."""
    parser = Parser(prog="./twin serve policy --", description="Serves a policy, as GR00T's server does.")
    add_policy_options(parser)
    return serve(*apply(config, parser.parse_args(arguments)))


def serve(config: Config, options: PolicyOptions, token: str | None) -> int:
    """Make the policy, bind, serve until a signal or a kill; returns the exit code.

    Raises:
        BindRefused: open to the network without a token.
        OSError: the address is taken.
        So101Error, ProtoError: the policy cannot be made.
    """
    settings = config.deploy.server
    endpoint = f"tcp://{f'[{settings.host}]' if ':' in settings.host else settings.host}:{settings.port}"
    check_guarded(endpoint, token, config.deploy.security.allow_open)
    with stop_on_signals() as stop:
        policy = make_policy(config, settings.policy, options, ALL_POLICIES)
        limit_torch(settings.torch_threads)
        try:
            server = PolicyServer(policy, endpoint, settings, token)
            print(f"Server is ready and listening on {server.endpoint}", flush=True)
            log.info("policy %s, replies in %s", settings.policy, settings.wire)
            server.serve(stop)
        finally:
            close = getattr(policy, "close", None)
            if close is not None:
                close()
    return stop.exit_code


def limit_torch(threads: int | None) -> None:
    """The most threads that PyTorch may compute with, where a policy uses it; None: as many as it likes."""
    torch = sys.modules.get("torch")
    if torch is not None and threads is not None:
        torch.set_num_threads(threads)


def check_guarded(endpoint: str, token: str | None, allow_open: bool) -> None:
    """GR00T's wire knows no keys: off loopback a token must guard it, or the user must say that nothing shall.

    Raises:
        BindRefused: neither.
    """
    if token is None and not allow_open and not is_local(endpoint):
        raise BindRefused(
            f"{endpoint} can be reached from the network, and without a token anyone there could use the policy. "
            "Name a file that holds one (--api-token-file FILE), or bind to 127.0.0.1, or set "
            "deploy.security.allow_open: true"
        )
