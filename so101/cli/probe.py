"""`./twin probe`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from so101.cli.family_options import MOST_SEED, FamilySettings
from so101.cli.options import with_options

if TYPE_CHECKING:
    from so101.families.probe import Gap, OpenLoop, OwnEpisode, TeacherForced

EPILOG = "Example: ./twin probe lift --demos demos/lift.demo --replay-episode 0 --open-loop"
_ROWS = 12  # of the table beside a demo


@with_options(FamilySettings)
def probe(
    settings: FamilySettings,
    role: Annotated[str, typer.Argument(metavar="ROLE", help="A policy of ./twin rl.")],
    demos: Annotated[Path, typer.Option(metavar="FILE.demo", help="Episodes it should have learnt from.")],
    episodes: Annotated[int, typer.Option(min=0, help="Of its own; 0: none.")] = 8,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Of the first start of its own.")] = 5000,
    steps: Annotated[int, typer.Option(min=1, help="Of each of its own.")] = 300,
    replay_episode: Annotated[
        int | None,
        typer.Option(min=0, metavar="K", help="Let it drive from the start of this demo, and compare row by row."),
    ] = None,
    open_loop: Annotated[
        bool, typer.Option("--open-loop", help="Execute the demos' actions again: does the twin repeat them?")
    ] = False,
    models: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="With the roles.", show_default="deploy.server.models_dir"),
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures here.")] = None,
) -> None:
    """Look into a policy that learnt from demos: their actions repeated, its own episodes, where it leaves a demo."""
    from so101.cli.progress import make_reporter
    from so101.datasets.demo_file import read_demo
    from so101.errors import DataError
    from so101.families import FamilyVectorEnv
    from so101.families import probe as probing
    from so101.families.drivers import load_role
    from so101.families.replay import check_fits, demo_task
    from so101.files import write_json

    config = settings.load()
    policy = load_role(role, models or Path(config.deploy.server.models_dir))
    demo = read_demo(demos)
    task = demo_task(demo, settings.tasks(), demos)
    env = FamilyVectorEnv(task, 1, autoreset=False)
    check_fits(demo, env, demos)
    if tuple(policy.observation_names) != demo.header.observation_names:
        raise DataError(
            f"{demos}: holds {demo.header.task} ({demo.header.widths[0]} words); {role} looks at the "
            f"{len(policy.observation_names)} words of {policy.task}"
        )
    if not demo.episodes or (replay_episode or 0) >= len(demo.episodes):
        raise DataError(f"{demos}: holds {len(demo.episodes)} episodes; there is no episode {replay_episode or 0}")
    console, found = Console(), {}
    forced = probing.teacher_forced(policy.act, demo.episodes, demo.header.action_names)
    console.print(_forced(forced, len(demo.episodes)))
    found["teacher_forced"] = probing.as_json(forced)
    if episodes:
        seeds = range(seed, seed + episodes)
        own = probing.closed_loop(policy.act, task, seeds, steps, config.deploy.family_probe)
        found |= {"closed_loop": probing.as_json(own), "rates": (rates := probing.rates(own))}
        console.print(_own(own, rates, config.deploy.family_probe.reward_marks))
    if replay_episode is not None:
        gaps = probing.replay_gaps(policy.act, env, demo.episodes[replay_episode])
        found["replay"] = probing.as_json(gaps)
        console.print(_beside(gaps, replay_episode))
    if open_loop:
        again = []
        with make_reporter(console) as reporter:
            reporter.start("open loop", len(demo.episodes), unit="episodes")
            for number, episode in enumerate(demo.episodes):
                again.append(probing.open_loop(env, number, episode, config.deploy.family_probe))
                reporter.advance()
        found["open_loop"] = probing.as_json(again)
        console.print(_again(again, config.deploy.family_probe.gap))
    if json is not None:
        write_json(json, found)


def _new_table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
    return table


def _forced(found: TeacherForced, episodes: int) -> Table:
    table = _new_table("Teacher-forced: mean distance from the demos' actions, of [-1, 1]", "", "mean |error|")
    table.add_row(f"{found.rows} rows of {episodes} episodes", f"{found.overall:.4f}")
    for joint, error in found.per_joint.items():
        table.add_row(f"  {joint}", f"{error:.4f}")
    for name, error in zip(("first", "second", "last"), found.per_third, strict=True):
        table.add_row(f"  {name} third of the episodes", f"{error:.4f}")
    table.add_row(f"  worst episode, {found.worst_episode}", f"{found.worst:.4f}")
    return table


def _own(own: list[OwnEpisode], rates: dict[str, Any], marks: list[float]) -> Table:
    above = [f"rows\n>{mark:g}" for mark in marks]
    table = _new_table(
        "Closed loop: it drives", "seed", "reward\nsum", *above, "rows\ngrasped", "least\nreach mm", "most\nheight mm",
        "success",
    )  # fmt: skip
    for e in own:
        table.add_row(
            str(e.seed),
            f"{e.reward_sum:.1f}",
            *map(str, e.above),
            str(e.grasped_rows),
            "" if e.least_reach_mm is None else f"{e.least_reach_mm:.0f}",
            "" if e.most_height_mm is None else f"{e.most_height_mm:.0f}",
            "at the end" if e.at_end else "on the way" if e.ever else "no",
        )
    said = []
    for name, word in (("any", "at some step"), ("end", "at the end")):
        low, high = rates[name]["wilson_95"]
        said.append(f"{rates[name]['successes']} of {rates['n']} {word} (95 %: {low:.0%} to {high:.0%})")
    table.caption, table.caption_justify = (
        f"{'; '.join(said)}; seeds {rates['seeds'][0]} to {rates['seeds'][1]}",
        "left",
    )
    return table


def _beside(gaps: list[Gap], episode: int) -> Table:
    table = _new_table(
        f"Beside demo {episode}, from its start", "row", "observation\ngap", "its word", "action\ngap",
        "teacher-\nforced", "reward", "recorded",
    )  # fmt: skip
    step = max(1, len(gaps) // _ROWS)
    for gap in gaps[::step]:
        table.add_row(
            str(gap.row),
            f"{gap.observation:.4f}",
            gap.word,
            f"{gap.action:.4f}",
            f"{gap.teacher_forced:.4f}",
            f"{gap.reward:.3f}",
            f"{gap.recorded_reward:.3f}",
        )
    return table


def _again(again: list[OpenLoop], gap: float) -> Table:
    table = _new_table(
        f"Open loop: the demos' actions again (departed: a word is {gap:g} off)", "episode", "largest\ngap", "its word",
        "departs\nat row", "reward\nsum", "recorded", "success", "recorded",
    )  # fmt: skip
    for e in again:
        table.add_row(
            str(e.episode),
            f"{e.largest_gap:.2g}",
            e.word if e.largest_gap else "",
            "never" if e.departs_at is None else str(e.departs_at),
            f"{e.reward_sum:.1f}",
            f"{e.recorded_reward_sum:.1f}",
            "yes" if e.success else "no",
            "yes" if e.recorded_success else "no",
        )
    same = sum(e.departs_at is None for e in again)
    table.caption, table.caption_justify = f"{same} of {len(again)} repeated", "left"
    return table
