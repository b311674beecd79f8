"""How the attempts of a run came out, read from disk while it goes on: counts, rates with intervals, causes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from so101.datasets.demo import list_demos, load_demo_header
from so101.errors import DataError
from so101.evaluation.statistics import Interval, cause_table, wilson_interval
from so101.pipeline.run_folder import RunFolder


@dataclass(frozen=True)
class Share:
    """`count` of `of`, and its Wilson interval."""

    count: int
    of: int

    @property
    def interval(self) -> Interval:
        return wilson_interval(self.count, self.of)


@dataclass(frozen=True)
class Outcomes:
    """What is on disk now. `causes` are of failed attempts, `replay_causes` of demos that failed in open-loop replay;
    most frequent first."""

    succeeded: Share
    verified: Share
    causes: list[tuple[str, Share]]
    replay_causes: list[tuple[str, Share]]


class OutcomeReader:
    """Reads `Outcomes` again and again; looks at each file once, for demo files never change.

    Args:
        keep: which attempts count as successes, `skillgen.keep`.
    """

    def __init__(self, run: RunFolder, keep: str = "strict") -> None:
        self._run, self._keep = run, keep
        self._known: dict[Path, dict[str, tuple[str, bool]]] = {}  # folder -> file name -> (cause, kept)

    def read(self) -> Outcomes:
        """The state on disk. Files that vanish or are damaged meanwhile do not count."""
        attempts = [*self._folder(self._run.generated), *self._folder(self._run.failed)]
        verified, rejected = list_demos(self._run.verified), self._folder(self._run.rejected)
        tried, replayed = len(attempts), len(verified) + len(rejected)
        failed = cause_table(cause or "unknown" for cause, kept in attempts if not kept)
        again = cause_table(cause or "unknown" for cause, _ in rejected)
        return Outcomes(
            succeeded=Share(sum(kept for _, kept in attempts), tried),
            verified=Share(len(verified), replayed),
            causes=[(cause, Share(count, tried)) for cause, count in failed],
            replay_causes=[(cause, Share(count, replayed)) for cause, count in again],
        )

    def _folder(self, folder: Path) -> list[tuple[str, bool]]:
        before, now = self._known.get(folder, {}), {}
        for path in list_demos(folder):
            known = before.get(path.name)
            if known is None:
                try:
                    header = load_demo_header(path)
                    known = str(header["cause"]), bool(header["strict" if self._keep == "strict" else "geometric"])
                except (DataError, KeyError):
                    continue
            now[path.name] = known
        self._known[folder] = now
        return list(now.values())
