"""`./twin record`."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.viewer.opening import ViewSettings, open_front
from so101.cli.family_options import MOST_SEED
from so101.cli.options import with_options
from so101.errors import ConfigError

if TYPE_CHECKING:
    from so101.config import Config
    from so101.families import FamilyVectorEnv
    from so101.families.hands import Source

EPILOG = "Example: ./twin record so101_tower_teleop_lift_brick --episodes 20      (without an arm: --no-arm)"
INPUTS = ("keys", "expert")


@with_options(ViewSettings)
def record(
    settings: ViewSettings,
    task: Annotated[str, typer.Argument(metavar="TASK", help="As ./twin tasks lists them.")],
    episodes: Annotated[int, typer.Option(min=1, help="Kept ones wanted, in this call.")] = 10,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.demo",
            help="Where they go; a file that is there is continued.",
            show_default="<deploy.family_record.folder>/<time>_<task>.demo",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Of the first start; the next ones follow.")] = 10_000,
    keep_failures: Annotated[
        bool, typer.Option("--keep-failures", help="Keep episodes whose time is over, too.")
    ] = False,
    policy: Annotated[
        str | None,
        typer.Option(metavar="ROLE", help="This policy drives (or: expert); i takes over, those rows are flagged."),
    ] = None,
    models: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="With the roles.", show_default="deploy.server.models_dir"),
    ] = None,
    leader_port: Annotated[
        str | None,
        typer.Option(metavar="PORT", help="Serial port of the leader arm.", show_default="robot.leader.port"),
    ] = None,
    no_arm: Annotated[bool, typer.Option("--no-arm", help="There is no leader arm: see --input.")] = False,
    input_: Annotated[
        str,
        typer.Option(
            "--input",
            metavar="keys|expert",
            help="With --no-arm: keys q a, w s, e d, r f, t g, y h and the sliders move the joints, or the scripted "
            "expert stands in for you.",
        ),
    ] = "keys",
    no_view: Annotated[bool, typer.Option("--no-view", help="Neither window nor page.")] = False,
    fast: Annotated[bool, typer.Option("--fast", help="With --no-arm --input expert: not in real time.")] = False,
) -> None:
    """Record episodes in the twin with the leader arm, which is only read, or correct a policy that drives.

    Keys: n keeps the episode now, x throws it away, i takes the arm from the policy and gives it back, space pauses.
    """
    from services.viewer.terminal import WithTerminal
    from so101.datasets.demo_file import DemoWriter
    from so101.datasets.demo_states import header_of
    from so101.families import FamilyVectorEnv
    from so101.families.drivers import make_driver
    from so101.families.hands import JOG_KEYS
    from so101.families.recorder import Recorder
    from so101.families.viewer import Blind, run_show

    if input_ not in INPUTS:
        raise ConfigError(f"--input is {input_!r}; allowed are {', '.join(INPUTS)}")
    config = settings.load()
    record_settings = config.deploy.family_record
    env = FamilyVectorEnv(settings.task(task), 1, autoreset=False)
    stamp = time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime())
    path = out or Path(record_settings.folder) / f"{stamp}_{task}.demo"
    with ExitStack() as stack:
        driver = make_driver(policy, env, models or Path(config.deploy.server.models_dir)) if policy else None
        by = input_ if no_arm else "leader"
        source = _source(config, env, by, leader_port, stack)
        writer = DemoWriter(path, header_of(env, {"recorded_by": by, "policy": policy or ""}))
        show = Recorder(
            env, source, writer.append, record_settings, seed=seed, episodes=episodes, policy=driver,
            keep_failures=keep_failures, say=typer.echo,
        )  # fmt: skip
        front = Blind() if no_view else open_front(show, config, page=settings.page, port=settings.port)
        watched = stack.enter_context(WithTerminal(front, [*show.keys, *"".join(JOG_KEYS)]))
        sleep = {"sleep": lambda seconds: None} if fast and no_arm and input_ == "expert" else {}
        try:
            run_show(show, watched, stays=False, **sleep)
        finally:
            where = f"in {path} ({writer.num_episodes} episodes)" if writer.num_episodes else "nothing was kept"
            typer.echo(f"{show.kept} kept, {show.successes} of them successes, {show.dropped} thrown away; {where}")


def _source(config: Config, env: FamilyVectorEnv, by: str, port: str | None, stack: ExitStack) -> Source:
    from so101.families.hands import Jog, Leader, StandIn

    if by == "keys":
        return Jog(env.lower, env.upper)
    if by == "expert":
        from so101.families.drivers import Scripted

        return StandIn(env, Scripted(env))
    from so101.robot import CalibrationError, RobotError, make_leader

    leader = make_leader(config, port)
    leader.connect()
    stack.callback(leader.bus.close)
    if leader.calibration_fault:
        raise CalibrationError(f"the leader cannot be followed: {leader.calibration_fault}")
    if leader.read().torque.any():
        raise RobotError(
            f"the leader at {leader.bus.port} has torque: is this the follower's port? It is not let go here, because "
            "it would fall. Hold it and switch its power off and on"
        )
    return Leader(lambda: leader.read().q_rad)
