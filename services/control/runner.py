"""The process that works on one run: `python -m services.control.runner STATE_FOLDER LOCK_DESCRIPTOR`.

Started by `launcher`, in a session of its own. It reads its job, runs the pipeline, appends progress, says how it
ended. SIGTERM stops it: what is finished stays, and the next process goes on there.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from services.control.launcher import SIGNALLED, Outcome, RunState, end_leftovers, hold_lock, write_outcome
from services.control.progress import ProgressFile
from so101.cli.signals import Stopped, stoppable
from so101.errors import So101Error

_CRASHED = 70  # exit code of an error that is ours (EX_SOFTWARE)


def main(arguments: list[str]) -> int:
    """Work on the job in the state folder; returns the exit code, which is also in `outcome.json`."""
    from so101.pipeline.workers import SINGLE_THREAD
    from so101.rendering.gl import set_aside

    state = RunState(Path(arguments[0]))
    hold_lock(int(arguments[1]))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # Prefect's every request
    for name, value in SINGLE_THREAD.items():  # as the command line does, before numpy loads
        os.environ.setdefault(name, value)
    set_aside()
    job = json.loads(state.job.read_text(encoding="utf-8"))
    reporter = ProgressFile(state.progress, job["progress_interval_s"])
    reporter.begin(job["start"])
    code, text = _work(job, reporter)
    reporter.close()
    if text:
        print(text, flush=True)
    write_outcome(state, Outcome(job["start"], code, text, time.time()))
    return code


def _work(job: dict[str, Any], reporter: ProgressFile) -> tuple[int, str]:
    """Exit code and what there is to say."""
    try:
        with stoppable():
            run_job(job, reporter)
    except Stopped as stop:
        return stop.exit_code, "stopped; resuming goes on where it stopped"
    except So101Error as error:
        return error.exit_code, str(error)
    except Exception as error:
        traceback.print_exc()
        return _CRASHED, f"the program failed: {type(error).__name__}: {error}; the log shows where"
    return 0, ""


def run_job(job: dict[str, Any], reporter: ProgressFile) -> None:
    """The pipeline with the settings of `job`, as `./twin run` would do it."""
    from rich.console import Console

    from services.control.flow import run_flow
    from services.control.requests import common_of
    from services.work import register
    from so101.pipeline.flow import run_pipeline

    register()
    source = Path(job["seeds"]) if job["seeds"] is not None else None
    common = replace(common_of(job), run=Path(job["folder"]))
    config = common.load_for_run(Console(), source=source, makes_seeds=True)

    def pipeline(around_stage):
        return run_pipeline(
            config,
            common.run_folder,
            reporter=reporter,
            workers=common.worker_count,
            source=source,
            around_stage=around_stage,
        )

    run_flow(
        pipeline,
        job["id"],
        prefect=job["prefect"],
        reporter=reporter,
        home=Path(job["prefect_home"]),
        start_s=job["prefect_start_s"],
    )


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    if exit_code > SIGNALLED:  # somebody waits for our end, which Prefect's farewell would delay by 10 s
        end_leftovers(RunState(Path(sys.argv[1])))
        os._exit(exit_code)
    sys.exit(exit_code)
