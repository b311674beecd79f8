"""kill -9 at random moments, resume, compare byte for byte.

Runs the pipeline once uninterrupted, then in other folders while killing it N times, each time starting the same
command anew, and compares the datasets. Half of the kills hit only the main process (its workers must end by
themselves), half the whole process group. When a run ends before its kill comes, it counts as finished and a new folder
is begun.

    python benchmarks/kill_resume.py --kills 20 --json kill_resume.json
"""

from __future__ import annotations

import argparse
import hashlib
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


def tree_digest(folder: Path) -> dict[str, str]:
    """Relative path -> SHA-256 of every file below `folder`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def last_stage(folder: Path) -> str:
    """The last stage that has left a file in the run folder."""
    run = RunFolder(folder)
    return next((name for name in reversed(STAGES) if STAGES[name].has_files(run)), "none")


class Runner:
    """Starts the pipeline command in a folder and ends it as told."""

    def __init__(self, command: list[str], scratch: Path) -> None:
        self._command, self._scratch, self._folders = command, scratch, 0

    def new_folder(self) -> Path:
        self._folders += 1
        return self._scratch / f"run_{self._folders:02d}"

    def start(self, folder: Path) -> subprocess.Popen:
        log = open(self._scratch / f"{folder.name}.log", "ab")
        with log:
            return subprocess.Popen(
                [*self._command, "--run", str(folder)], stdout=log, stderr=log, start_new_session=True, cwd=REPOSITORY
            )

    def finish(self, folder: Path) -> float:
        """Run to the end; seconds it took. A failure ends the benchmark with the command's last words."""
        began = time.monotonic()
        self.check(self.start(folder).wait(), folder)
        return time.monotonic() - began

    def check(self, code: int, folder: Path) -> None:
        if code != 0:
            tail = (self._scratch / f"{folder.name}.log").read_text(errors="replace")[-2000:]
            raise SystemExit(f"kill_resume: {shlex.join(self._command)} ended with {code}:\n{tail}")


def measure(runner: Runner, kills: int, longest: float, seed: int) -> dict:
    """Kill `kills` times, each time within `longest` times the length of a run; returns the figures."""
    reference = runner.new_folder()
    whole_s = runner.finish(reference)
    expected = tree_digest(reference / "dataset")
    print(f"uninterrupted run: {whole_s:.1f} s, {len(expected)} files in the dataset")
    dice = random.Random(seed)
    moments, finished, folder = [], [], runner.new_folder()
    while len(moments) < kills:
        delay_s = dice.uniform(0.0, longest * whole_s)
        process = runner.start(folder)
        try:
            runner.check(process.wait(timeout=delay_s), folder)
        except subprocess.TimeoutExpired:
            only_main = len(moments) % 2 == 0
            (os.kill if only_main else os.killpg)(process.pid, signal.SIGKILL)
            process.wait()
            moments.append({"after_s": round(delay_s, 3), "stage": last_stage(folder), "only_main": only_main})
            print(f"kill {len(moments)}: after {delay_s:.2f} s, last stage with files: {moments[-1]['stage']}")
            continue
        finished.append(folder)
        folder = runner.new_folder()
    if folder.exists():
        runner.finish(folder)
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
        "uninterrupted_s": round(whole_s, 2),
        "moments": moments,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument(
        "--longest", type=float, default=0.5, help="latest kill after a start, in lengths of a whole run"
    )
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
        figures = measure(Runner([*command, *more], Path(scratch)), arguments.kills, arguments.longest, arguments.seed)
    verdict = "identical" if figures["identical"] else f"{figures['files_different']} DIFFERENT: {figures['different']}"
    print(f"{figures['kills']} kills, {figures['resumed_runs']} runs, {figures['files_compared']} files: {verdict}")
    if arguments.json:
        write_json(arguments.json, figures)
    return 0 if figures["identical"] else 1


if __name__ == "__main__":
    sys.exit(main())
