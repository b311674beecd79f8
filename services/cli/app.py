"""`./twin`, `./real` and `./policy`: the commands of the library and those of the services."""

from __future__ import annotations

import sys
from importlib import import_module

from proto.errors import ProtoError
from services.cli import deploy_reach, down, eval, keys, policy_view, record_family, replay, serve, transfer, up, view
from services.work import register
from so101.cli.app import main as run_program
from so101.cli.app import make_app
from so101.errors import So101Error

PROGRAMS = {"real": "services.cli.real", "policy": "services.cli.policy"}  # launchers with a command line of their own

_PANEL = "Services"
app = make_app()
app.command("eval", rich_help_panel="Learning", epilog=eval.EPILOG)(eval.evaluate)
app.command("transfer", rich_help_panel="Learning", epilog=transfer.EPILOG)(transfer.transfer)
app.command("deploy-reach", rich_help_panel="Learning", epilog=deploy_reach.EPILOG)(deploy_reach.deploy_reach)
for name, command, module in (
    ("view", view.view, view),
    ("policy-view", policy_view.policy_view, policy_view),
    ("replay", replay.replay, replay),
    ("record", record_family.record, record_family),
):
    app.command(name, rich_help_panel="Task families", epilog=module.EPILOG)(command)
app.command(
    "serve",
    rich_help_panel=_PANEL,
    epilog=serve.EPILOG,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(serve.serve)
app.command("up", rich_help_panel=_PANEL, epilog=up.EPILOG)(up.up)
app.command("down", rich_help_panel=_PANEL, epilog=down.EPILOG)(down.down)
app.command("ps", rich_help_panel=_PANEL, epilog=down.PS_EPILOG)(down.ps)
app.command("health", rich_help_panel=_PANEL, epilog=down.HEALTH_EPILOG)(down.health)
app.command("keys", rich_help_panel=_PANEL, epilog=keys.EPILOG)(keys.keys)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code. A first word of PROGRAMS chooses that program."""
    arguments = sys.argv[1:] if arguments is None else arguments
    register()
    try:
        if arguments and arguments[0] in PROGRAMS:
            return import_module(PROGRAMS[arguments[0]]).main(arguments[1:])
        return run_program(arguments, program=app)
    except ProtoError as error:
        if "--debug" in arguments:
            raise
        print(f"error: {error}", file=sys.stderr)
        return So101Error.exit_code
