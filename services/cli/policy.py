"""`./policy`: serve a policy on port 5555."""

from __future__ import annotations

import logging
import sys
import traceback

from proto.errors import ProtoError
from services.policy.main import serve
from services.policy.options import Parser, add_policy_options, apply
from so101.config import load_config
from so101.errors import So101Error

_LEVELS = ("debug", "info", "warning", "error")


def main(arguments: list[str]) -> int:
    """Run the command line; returns the exit code."""
    try:
        parser = Parser(
            prog="./policy",
            description="Serves a policy on port 5555, as Isaac-GR00T's server does.",
            epilog="Example: ./policy --policy replay --demo runs/default",
        )
        add_policy_options(parser)
        parser.add_argument("--configs", metavar="FOLDER", help="folder with the eleven YAML files")
        parser.add_argument(
            "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="override one value; repeatable"
        )
        parser.add_argument("--log-level", default="info", choices=_LEVELS)
        parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
        chosen = parser.parse_args(arguments)
        logging.basicConfig(
            level=chosen.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", datefmt="%H:%M:%S"
        )
        return serve(*apply(load_config(chosen.configs, overrides=chosen.set), chosen))
    except (So101Error, ProtoError, OSError) as error:
        if "--debug" in arguments:
            traceback.print_exc()
        print(f"error: {error}", file=sys.stderr)
        return getattr(error, "exit_code", So101Error.exit_code)
