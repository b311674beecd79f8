"""`./twin serve renderer`: draws the videos of demos."""

from __future__ import annotations

from services.work.pool import serve_jobs
from so101.config import Config

KINDS = ("render",)


def main(config: Config, arguments: list[str]) -> int:
    return serve_jobs(config, arguments, service="renderer", kinds=KINDS, about=__doc__)
