"""Memory of a generation worker: peak and current resident size after 100 attempts and after all of them.

.venv/bin/python benchmarks/memory.py --attempts 1000      # about 3 minutes on an idle core
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from so101.config import load_config
from so101.datasets.seeding import make_seeds
from so101.pipeline.executors import run_job, start_worker
from so101.pipeline.jobs import Job, JobContext
from so101.pipeline.progress import SilentReporter
from so101.pipeline.run_folder import RunFolder
from so101.pipeline.workers import map_unordered

PAGE_BYTES = resource.getpagesize()
MIB = 1024.0 * 1024.0


def _resident(job: int) -> tuple[int, float, float]:
    """Attempt `job`, then this process's current and peak resident size in MiB."""
    run_job(Job(job))
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return job, pages * PAGE_BYTES / MIB, peak / MIB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    config = load_config()
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder))
        make_seeds(config, run, SilentReporter(), 1)
        context = JobContext("attempt", config.model_dump_json(), run.root)
        workers = 2  # more than one, so that attempts run in a worker process and not in this one
        samples = list(
            map_unordered(
                _resident, range(options.attempts), workers=workers, initializer=start_worker, initargs=(context,)
            )
        )
    marks = sorted({min(100, options.attempts), options.attempts // 2, options.attempts})
    table, report = Table("attempts", "resident MiB (largest worker)", "peak MiB"), {}
    for mark in marks:
        recent = samples[max(0, mark - 10) : mark]
        report[str(mark)] = {"resident_mib": max(s[1] for s in recent), "peak_mib": max(s[2] for s in recent)}
        table.add_row(str(mark), f"{report[str(mark)]['resident_mib']:.0f}", f"{report[str(mark)]['peak_mib']:.0f}")
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
