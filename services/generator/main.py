"""`./twin serve generator`: does the jobs that need physics: attempts, and their replays."""

from __future__ import annotations

from services.work.pool import serve_jobs
from so101.config import Config

KINDS = ("attempt", "verify")


def main(config: Config, arguments: list[str]) -> int:
    return serve_jobs(config, arguments, service="generator", kinds=KINDS, about=__doc__)
