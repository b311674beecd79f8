"""The pipeline as a Prefect flow, one task a stage, on Prefect's embedded server. Without Prefect it runs the same.

Prefect shows and records runs; it decides nothing: what is done is read from disk by the stages, so a run goes on after
any kill with or without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from so101.pipeline.flow import AroundStage
from so101.pipeline.progress import Reporter

Pipeline = Callable[[AroundStage | None], Any]  # runs the pipeline, with this around each stage


def set_up_prefect(home: Path, start_s: int) -> None:
    """Settings of Prefect, before it is imported: its own folder, its own server on loopback, nothing sent anywhere."""
    os.environ.update(
        PREFECT_HOME=str(home.resolve()),
        DO_NOT_TRACK="1",
        PREFECT_SERVER_ANALYTICS_ENABLED="false",
        PREFECT_SERVER_ALLOW_EPHEMERAL_MODE="true",
        PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS=str(start_s),
        PREFECT_TELEMETRY_ENABLE_RESOURCE_METRICS="false",
        PREFECT_LOGGING_LEVEL="WARNING",
        PREFECT_RESULTS_PERSIST_BY_DEFAULT="false",
    )
    os.environ.pop("PREFECT_API_URL", None)  # of somebody's own server: runs of ours do not belong there


def run_flow(pipeline: Pipeline, name: str, *, prefect: bool, reporter: Reporter, home: Path, start_s: int) -> Any:
    """Run `pipeline`, as the Prefect flow run `name` where that is wanted and possible; returns what it returns.

    What keeps Prefect from starting is reported as a message; then the pipeline runs without it.
    """
    if not prefect:
        return pipeline(None)
    if find_spec("prefect") is None:
        reporter.message("Prefect is not installed (pip install -e .[control]); running without it")
        return pipeline(None)
    set_up_prefect(home, start_s)
    return _run_in_prefect(pipeline, name, reporter)


def _run_in_prefect(pipeline: Pipeline, name: str, reporter: Reporter) -> Any:
    from prefect import flow, task
    from prefect.cache_policies import NO_CACHE

    begun = False

    def around_stage(stage: str, work: Callable[[], Any]) -> Any:
        return task(name=stage, cache_policy=NO_CACHE, persist_result=False)(work)()

    @flow(name="so101", flow_run_name=name, validate_parameters=False, persist_result=False)
    def so101() -> Any:
        nonlocal begun
        begun = True
        return pipeline(around_stage)

    try:
        return so101()
    except Exception as error:
        if begun:
            raise
        first = (str(error) or type(error).__name__).splitlines()[0]
        reporter.message(f"Prefect did not start ({first}); running without it")
        return pipeline(None)
