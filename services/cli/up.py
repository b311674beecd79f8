"""`./twin up`: all services as plain processes, looked after by one that stays in the background."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from so101.cli.options import Settings, with_options
from so101.errors import ConfigError, did_you_mean

EPILOG = "Example: ./twin up --generators 2      (then open the page it names; ./twin ps, ./twin down)"

_POLL_S = 0.1
_PROFILES = ("sim", "real")


@dataclass(frozen=True)
class Wanted:
    """What a background process was asked for; kept in ``supervisor/up.json`` of the state folder."""

    profile: str
    arm: bool
    only: list[str]
    settings: list[str]
    generators: int
    renderers: int

    def differences(self, other: Wanted) -> list[str]:
        """Names of what differs, beside the numbers of workers, which may change while all goes on."""
        names = [field.name for field in fields(self) if field.name not in ("generators", "renderers")]
        return [name for name in names if getattr(self, name) != getattr(other, name)]


@with_options(Settings)
def up(
    settings: Settings,
    services: Annotated[
        list[str] | None, typer.Argument(metavar="[SERVICE]...", help="Only these.", show_default="all")
    ] = None,
    profile: Annotated[str, typer.Option(help="sim: a simulated arm; real: the one on the USB port.")] = "sim",
    generators: Annotated[int, typer.Option(min=0, help="Processes that make demos.")] = 1,
    renderers: Annotated[int, typer.Option(min=0, help="Processes that render videos.")] = 1,
    arm: Annotated[bool, typer.Option("--arm", help="Allow the driver to move the arm.")] = False,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay, until stopped (Ctrl-C).")] = False,
) -> None:
    """Start all services and say where the page is.

    Again with other numbers of generators and renderers: the difference starts or stops, the rest goes on.
    """
    from services.lineup import line_up

    if profile not in _PROFILES:
        raise ConfigError(
            f"--profile {profile}: must be one of {', '.join(_PROFILES)}{did_you_mean(profile, _PROFILES)}"
        )
    config = settings.load()
    state_dir = folder_of(config)
    wanted = Wanted(profile, arm, services or [], settings_arguments(settings), generators, renderers)
    line_up(config, state_dir, **_choices(wanted))  # errors now, not in the background
    if foreground:
        raise typer.Exit(_stay(config, state_dir, wanted))
    running = _running(state_dir)
    if running is None:
        pid = _start_background(state_dir, wanted)
        _follow(state_dir, pid, wanted, seen=0)
    else:
        pid, present = running
        if different := present.differences(wanted):
            raise ConfigError(f"the services are up with other choices ({', '.join(different)}); run ./twin down first")
        if present == wanted:
            typer.echo("already up")
        else:
            _write(state_dir, os.getpid(), wanted, "wanted.json")
            seen = _log(state_dir).stat().st_size
            os.kill(pid, signal.SIGHUP)
            _follow(state_dir, pid, wanted, seen)
    if "control" in wanted.only or not wanted.only:
        http = config.deploy.control_plane.http
        typer.echo(f"page: http://{'127.0.0.1' if http.host in ('0.0.0.0', '::') else http.host}:{http.port}/")


def folder_of(config) -> Path:
    """The state folder of ./twin up: absolute, whatever folder it is called from."""
    return Path(__file__).resolve().parents[2] / config.deploy.supervisor.state_dir


def settings_arguments(settings: Settings) -> list[str]:
    """The options that give `settings` again."""
    arguments: list[str] = []
    for name in ("configs", "rig"):
        if (path := getattr(settings, name)) is not None:
            arguments += [f"--{name}", str(path.resolve())]
    for name in ("preset", "task", "demos"):
        if (value := getattr(settings, name)) is not None:
            arguments += [f"--{name}", str(value)]
    for assignment in settings.set_ or []:
        arguments += ["--set", assignment]
    return arguments


def running_pid(state_dir: Path) -> int | None:
    """The process that looks after the services, when there is one."""
    found = _running(state_dir)
    return None if found is None else found[0]


def _choices(wanted: Wanted) -> dict:
    return asdict(wanted)


def _running(state_dir: Path) -> tuple[int, Wanted] | None:
    from services.process import start_mark

    try:
        state = json.loads((state_dir / "supervisor/up.json").read_text())
        alive = start_mark(state["pid"]) == str(state["started"])
        return (state["pid"], Wanted(**state["wanted"])) if alive else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(state_dir: Path, pid: int, wanted: Wanted, name: str) -> None:
    from services.process import start_mark
    from so101.files import write_json

    write_json(state_dir / "supervisor" / name, {"pid": pid, "started": start_mark(pid), "wanted": asdict(wanted)})


def _stay(config, state_dir: Path, wanted: Wanted) -> int:
    """Run the services here until a signal; SIGHUP takes new numbers of workers from wanted.json."""
    from proto.stopping import stop_on_signals
    from services.lineup import line_up
    from services.supervisor import Supervisor

    supervisor = Supervisor(
        line_up(config, state_dir, **_choices(wanted)), state_dir, config.deploy.supervisor, say=_say
    )
    changed = threading.Event()
    signal.signal(signal.SIGHUP, lambda *_: changed.set())
    with stop_on_signals() as stop:
        try:
            supervisor.start(stop)
            _write(state_dir, os.getpid(), wanted, "up.json")
            while not stop.wait(config.deploy.supervisor.poll_s):
                supervisor.look()
                if changed.is_set():
                    changed.clear()
                    wanted = Wanted(**json.loads((state_dir / "supervisor/wanted.json").read_text())["wanted"])
                    supervisor.change(line_up(config, state_dir, **_choices(wanted)), stop)
                    _write(state_dir, os.getpid(), wanted, "up.json")
        finally:
            supervisor.stop()
            (state_dir / "supervisor/up.json").unlink(missing_ok=True)
        return 0 if stop.signal_number == signal.SIGTERM else stop.exit_code


def _say(line: str) -> None:
    print(line, flush=True)


def _start_background(state_dir: Path, wanted: Wanted) -> int:
    (state_dir / "supervisor").mkdir(parents=True, exist_ok=True)
    numbers = ["--generators", str(wanted.generators), "--renderers", str(wanted.renderers)]
    flags = ["--profile", wanted.profile, *numbers, *["--arm"] * wanted.arm]
    argv = [sys.executable, "-m", "services.cli", "up", "--foreground", *flags, *wanted.settings, *wanted.only]
    with open(_log(state_dir), "wb") as log:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    return child.pid


def _log(state_dir: Path) -> Path:
    return state_dir / "supervisor/up.log"


def _follow(state_dir: Path, pid: int, wanted: Wanted, seen: int) -> None:
    """Show what the background process says after `seen` bytes until all that is wanted is up, or it ended."""
    from services.process import SupervisorError, start_mark

    with open(_log(state_dir)) as log:
        log.seek(seen)
        try:
            while True:
                done, alive = _running(state_dir) == (pid, wanted), start_mark(pid) is not None
                said = log.read()
                typer.echo(said, nl=False)
                if done:
                    return
                if not alive:
                    raise SupervisorError(f"the services did not come up (see above, and {log.name})")
                time.sleep(_POLL_S)
        except BaseException:
            if start_mark(pid) is not None:
                os.kill(pid, signal.SIGTERM)  # Ctrl-C while it starts: nothing is left behind
            raise
