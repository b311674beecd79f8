"""kill -9 at random moments, resume, compare byte for byte.

Runs the pipeline once uninterrupted, then in other folders while killing it N times, each time starting the same
command anew, and compares the datasets. The kills take turns over the stages, start-up included: each waits until its
stage is at work and then for a random part of that stage's length, so that short stages are hit too. Half of the kills
hit only the main process (its workers must end by themselves), half the whole process group. When a run ends before its
kill comes, it counts as finished and a new folder is begun.

    python benchmarks/kill_resume.py --kills 20 --json kill_resume.json
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from so101.files import write_json
from so101.pipeline.run_folder import RunFolder
from so101.pipeline.stages import STAGES

REPOSITORY = Path(__file__).resolve().parents[1]
START = "start-up"  # imports, before the first stage
MOMENTS = (START, *STAGES)
POLL_S = 0.01


def tree_digest(folder: Path) -> dict[str, str]:
    """Relative path -> SHA-256 of every file below `folder`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def last_stage(folder: Path) -> str:
    """The last stage that has left a file in the run folder."""
    run = RunFolder(folder)
    return next((name for name in reversed(STAGES) if STAGES[name].has_files(run)), "none")


def stage_at_work(output: str) -> str:
    """The stage a command is in, from what it has printed so far."""
    heads = (line.partition(":")[0] for line in reversed(output.splitlines()))
    return next((head for head in heads if head in STAGES), START)


class Runner:
    """Starts the pipeline command in a folder and ends it as told."""

    def __init__(self, command: list[str], scratch: Path) -> None:
        self._command, self._scratch, self._folders = command, scratch, 0

    def new_folder(self) -> Path:
        self._folders += 1
        return self._scratch / f"run_{self._folders:02d}"

    def start(self, folder: Path) -> Process:
        return Process([*self._command, "--run", str(folder)], self._scratch / f"{folder.name}.log")


class Process:
    """The command at work; `log` is where its output is appended."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command, self._log = command, log
        with open(log, "ab") as file:
            self._begin = file.tell()
            self._process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True, cwd=REPOSITORY)

    def stage(self) -> str:
        with open(self._log, "rb") as file:
            file.seek(self._begin)
            return stage_at_work(file.read().decode(errors="replace"))

    def ended(self) -> bool:
        """Whether it has ended well. A failure ends the benchmark with the command's last words."""
        code = self._process.poll()
        if code:
            tail = self._log.read_text(errors="replace")[-2000:]
            raise SystemExit(f"kill_resume: {shlex.join(self._command)} ended with {code}:\n{tail}")
        return code == 0

    def finish(self) -> dict[str, float]:
        """Let it run to its end; seconds spent in each stage."""
        spent = dict.fromkeys(MOMENTS, 0.0)
        before = time.monotonic()
        while not self.ended():
            time.sleep(POLL_S)
            now = time.monotonic()
            spent[self.stage()] += now - before
            before = now
        return spent

    def kill_in(self, stage: str, delay_s: float, only_main: bool) -> bool:
        """kill -9, `delay_s` after the command got to `stage` or a later one; False when it ended before."""
        reached = None
        while not self.ended():
            now = time.monotonic()
            if reached is None and MOMENTS.index(self.stage()) >= MOMENTS.index(stage):
                reached = now
            if reached is not None and now >= reached + delay_s:
                (os.kill if only_main else os.killpg)(self._process.pid, signal.SIGKILL)
                self._process.wait()
                return True
            time.sleep(POLL_S)
        return False


def measure(runner: Runner, kills: int, seed: int) -> dict:
    """Kill `kills` times, in each stage in turn; returns the figures."""
    reference = runner.new_folder()
    spent = runner.start(reference).finish()
    expected = tree_digest(reference / "dataset")
    print(f"uninterrupted run: {sum(spent.values()):.1f} s, {len(expected)} files in the dataset", flush=True)
    dice = random.Random(seed)
    moments, finished, folder = [], [], runner.new_folder()
    for stage in itertools.cycle(MOMENTS):
        if len(moments) == kills:
            break
        delay_s, only_main = dice.uniform(0.0, spent[stage]), len(moments) % 2 == 0
        process = runner.start(folder)
        if process.kill_in(stage, delay_s, only_main):
            moment = {"stage": process.stage(), "after_s": round(delay_s, 3), "last_files": last_stage(folder)}
            moments.append({**moment, "only_main": only_main})
            print(
                f"kill {len(moments)}: in {moment['stage']}, {delay_s:.2f} s after it came to {stage}; last files: "
                f"{moment['last_files']}; {'main process' if only_main else 'process group'}",
                flush=True,
            )
            continue
        finished.append(folder)
        folder = runner.new_folder()
    if folder.exists():
        runner.start(folder).finish()
        finished.append(folder)
    different = []
    for each in finished:
        actual = tree_digest(each / "dataset")
        different += [
            f"{each.name}/{name}" for name in sorted(expected | actual) if expected.get(name) != actual.get(name)
        ]
    return {
        "kills": len(moments),
        "resumed_runs": len(finished),
        "files_compared": len(expected) * len(finished),
        "files_different": len(different),
        "identical": bool(expected) and not different,
        "different": different[:20],
        "uninterrupted_s": round(sum(spent.values()), 2),
        "stages_s": {name: round(seconds, 2) for name, seconds in spent.items()},
        "moments": moments,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--demos", type=int, default=3, help="verified demos in the dataset")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--twin", default=f"{sys.executable} -m so101.cli", help="the command line to test")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments, more = parser.parse_known_args()  # the rest goes to the command, e.g. --set render.setting=fast
    command = [
        *shlex.split(arguments.twin),
        "run",
        "--demos",
        str(arguments.demos),
        "--workers",
        str(arguments.workers),
    ]
    with tempfile.TemporaryDirectory(prefix="kill_resume_") as scratch:
        figures = measure(Runner([*command, *more], Path(scratch)), arguments.kills, arguments.seed)
    verdict = "identical" if figures["identical"] else f"{figures['files_different']} DIFFERENT: {figures['different']}"
    print(f"{figures['kills']} kills, {figures['resumed_runs']} runs, {figures['files_compared']} files: {verdict}")
    if arguments.json:
        write_json(arguments.json, figures)
    return 0 if figures["identical"] else 1


if __name__ == "__main__":
    sys.exit(main())
