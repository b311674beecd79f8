""".demo files to and from HDF5 seeds and LeRobot datasets; from MRLDEMO1 files; several into one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from so101.config import Config
from so101.datasets.demo_episode import DemoHeader, Episode
from so101.datasets.demo_file import DemoFile, read_demo, write_demo
from so101.errors import DataError
from so101.families import FamilyTask, find_task
from so101.pipeline.progress import Reporter

FindTask = Callable[[str], FamilyTask]
DEMO, HDF5 = (".demo",), (".hdf5", ".h5")
_OTHER_FILES = (".hdf", ".hd5", ".json", ".jsonl", ".npz", ".parquet", ".zarr", ".mp4", ".zip", ".tar", ".csv")


@dataclass(frozen=True)
class Converted:
    """What was written. `left_out`: what of the source it does not hold, in sentences."""

    episodes: int
    rows: int
    left_out: list[str]


def convert(
    source: Path | str,
    out: Path | str,
    config: Config,
    reporter: Reporter,
    *,
    task: str | None = None,
    find: FindTask = find_task,
    render: bool = False,
    accept_rate: bool = False,
) -> Converted:
    """Convert between a .demo file and HDF5 (.hdf5, .h5) or a LeRobot dataset (a folder); one is a .demo file.

    Args:
        config: its dataset section says the units of LeRobot, teleop how those of a recording are told.
        task: of the family whose words and rewards the rows get; where the source names one it may be left out.
        find: gives the task of a name.
        render: LeRobot gets pictures of the family's cameras.
        accept_rate: take LeRobot's rows at another rate as they are.

    Raises:
        DataError: neither is a .demo file, `out` exists, or the source lacks what is needed.
        ConfigError: no such task.
    """
    from so101.datasets import demo_lerobot, demo_seeds

    source, out = Path(source), Path(out)
    if not source.exists():
        raise DataError(f"{source}: no such file or folder; check the path")
    if out.exists():
        raise DataError(f"{out}: exists; name another --out, or move it away")
    if DEMO[0] not in (source.suffix, out.suffix):
        raise DataError(f"{source} to {out}: one of the two must be a .demo file")
    if out.suffix.lower() in _OTHER_FILES:
        raise DataError(f"{out}: cannot tell what to write; .demo, {' or '.join(HDF5)}, or a folder name for LeRobot")
    if source.suffix not in DEMO:
        return _to_demo(source, out, config, reporter, task, find, accept_rate)
    file = read_demo(source)
    if not file.header.task or out.suffix in DEMO:
        file = _named(file, task, source, find)
    elif task not in (None, file.header.task):
        raise DataError(f"{source}: of task {file.header.task!r}, not {task!r}; leave --task out")
    if not file.episodes:
        raise DataError(f"{source}: no episode in it")
    family_task = find(file.header.task)
    if out.suffix in DEMO:
        write_demo(out, file.header, file.episodes)
        written, left_out = file.episodes, []
    elif out.suffix in HDF5:
        written, left_out = demo_seeds.to_seeds(file, family_task, out, reporter)
    else:
        written, left_out = demo_lerobot.to_lerobot(file, family_task, out, config, reporter, render=render)
    return _converted(written, left_out)


def _converted(episodes: Sequence[Episode], left_out: list[str]) -> Converted:
    return Converted(len(episodes), sum(episode.num_rows for episode in episodes), left_out)


def merge(sources: Sequence[Path | str], out: Path | str) -> Converted:
    """Write the episodes of several files of one task to a new one, in order.

    Raises:
        DataError: `out` exists, a file is damaged, or they differ in task, words or rate.
    """
    out = Path(out)
    if out.exists():
        raise DataError(f"{out}: exists; name another --out, or move it away")
    files = [(Path(source), read_demo(source)) for source in sources]
    header = files[0][1].header
    for path, file in files[1:]:
        if difference := header.difference(file.header):
            raise DataError(f"{files[0][0]} and {path} do not go into one file: {difference}")
    episodes = [episode for _, file in files for episode in file.episodes]
    write_demo(out, header, episodes)
    metas = [file.header.meta for _, file in files]
    left_out = [] if all(meta == header.meta for meta in metas) else ["what `meta` of the files after the first says"]
    return _converted(episodes, left_out)


def recover(source: Path | str, out: Path | str, task: str | None = None) -> DemoFile:
    """Write every whole episode of a file to a new one, unless nothing is lost; returns them.

    Args:
        task: of an MRLDEMO1 file, which does not say it.

    Raises:
        DataError: `out` exists, or nothing can be recovered.
    """
    out = Path(out)
    if out.exists():
        raise DataError(f"{out}: exists; name another --out, or move it away")
    file = read_demo(source, strict=False)
    if not file.lost:
        return file
    if not file.episodes:
        raise DataError(f"{source}: no whole episode in it, so nothing is written; {file.lost}")
    if not file.header.task:
        file = _named(file, task, Path(source), find_task)
    write_demo(out, file.header, file.episodes)
    return file


def _to_demo(
    source: Path, out: Path, config: Config, reporter: Reporter, task: str | None, find: FindTask, accept_rate: bool
) -> Converted:
    from so101.datasets import demo_lerobot, demo_seeds
    from so101.datasets.demo_rebuild import RecordedStates
    from so101.datasets.demo_states import header_of

    header, facts = None, {}
    if source.is_dir():
        facts = demo_lerobot.demo_facts(source)
        name = task or facts.get("task")
        if name is None:
            raise DataError(
                f"{source}: does not say of which task family it is; --task TASK (`./twin tasks` lists them)"
            )
        found = find(name)
        episodes, left_out = demo_lerobot.from_lerobot(source, found, config, reporter, accept_rate=accept_rate)
    else:
        found = find(task) if task else None
        header, episodes, left_out = demo_seeds.from_seeds(source, found, reporter)
    if header is None:
        header = header_of(RecordedStates(found).env, {**facts.get("meta", {}), "converted_from": source.name})
    write_demo(out, header, episodes)
    return _converted(episodes, left_out)


def _named(file: DemoFile, task: str | None, source: Path, find: FindTask) -> DemoFile:
    """An imported file with the words of the task it is of."""
    from so101.datasets.demo_rebuild import RecordedStates
    from so101.datasets.demo_states import header_of

    if file.header.task:
        raise DataError(f"{source}: a .demo file already; `./twin demo merge` or `recover` write another")
    if task is None:
        raise DataError(f"{source}: an MRLDEMO1 file does not say its task; --task TASK (`./twin tasks` lists them)")
    header: DemoHeader = header_of(RecordedStates(find(task)).env, file.header.meta)
    if header.widths != file.header.widths:
        raise DataError(
            f"{source}: rows of {file.header.widths[0]} words and {file.header.widths[1]} actions, task {task} has "
            f"{header.widths[0]} and {header.widths[1]}; name the task it was recorded for"
        )
    return DemoFile(header, file.episodes, file.lost)
