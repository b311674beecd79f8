"""Where an evaluation keeps its files: one an episode, so that a killed one goes on, and what they were made with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from so101.config import Config
from so101.errors import RunFolderError
from so101.evaluation.closed_loop.record import Episode, episode_path, list_episodes, load_episode
from so101.files import remove_temporaries, write_json
from so101.pipeline.record import settings_of

_VERSION = 1
_SHOWN = 12  # differences told
_NEVER_DECIDE = (
    "training", "skillgen", "deploy", "cameras.sources", "cameras.capture", "dataset.report", "render.codec",
    "robot.bus", "robot.leader", "robot.identification", "task.grasp_check", "--seeds",
)  # fmt: skip
_DECIDE_ALL_THE_SAME = (
    "skillgen.start_noise_rad",
    "training.embedded.acting",
    *(f"deploy.control.{key}" for key in (
        "control_hz", "action_horizon", "execute_steps", "ema_alpha", "max_stale_ms", "overlap", "settle_s",
    )),
    *(f"deploy.evaluation.{key}" for key in (
        "max_s", "success_hold_s", "observation_delay_frames", "torch_threads", "stages",
    )),
)  # fmt: skip


def deciding_settings(config: Config) -> dict[str, Any]:
    """Dotted key -> value of all settings that may change what happens in an episode."""
    return {key: value for key, value in settings_of(config, None).items() if _decides(key)}


def _decides(key: str) -> bool:
    return _below(key, _DECIDE_ALL_THE_SAME) or not _below(key, _NEVER_DECIDE)


def _below(key: str, prefixes: Iterable[str]) -> bool:
    return any(key == prefix or key.startswith(prefix + ".") for prefix in prefixes)


@dataclass(frozen=True)
class EvalFolder:
    """Paths of one evaluation. Nothing is created by looking at them."""

    root: Path

    @property
    def record(self) -> Path:
        """JSON: policy and settings that the episodes were made with."""
        return self.root / "eval.json"

    @property
    def lock(self) -> Path:
        """Locked while a command works here; holds its process id."""
        return self.root / ".lock"

    @property
    def episodes(self) -> Path:
        return self.root / "episodes"

    @property
    def videos(self) -> Path:
        return self.root / "videos"

    @property
    def summary(self) -> Path:
        """JSON."""
        return self.root / "summary.json"

    @property
    def figure(self) -> Path:
        """PNG."""
        return self.root / "outcomes.png"

    @property
    def metrics(self) -> Path:
        """JSON: FRAME metrics, errors of joints, diagnoses of every episode."""
        return self.root / "metrics.json"

    @property
    def pictures(self) -> Path:
        """Folder of pictures of single episodes."""
        return self.root / "figures"

    def missing(self, seeds: Iterable[int]) -> list[int]:
        """Those of `seeds` that have no episode yet."""
        return [seed for seed in seeds if not episode_path(self.episodes, seed).is_file()]

    def load(self, seeds: Iterable[int]) -> list[Episode]:
        """The episodes of `seeds`. Raises DataError when one is not there or damaged."""
        return [load_episode(episode_path(self.episodes, seed)) for seed in seeds]

    def bind(self, config: Config, policy: Mapping[str, Any], *, fresh: bool = False) -> None:
        """Make the folder one of this policy and these settings.

        Args:
            policy: what tells one policy from another, flat: name, digest of its checkpoint.
            fresh: first remove what an evaluation left here.

        Raises:
            RunFolderError: it holds episodes of another policy or of other settings, or files of something else.
        """
        self._refuse_foreign()
        if fresh:
            self._clear()
        remove_temporaries(self.root)
        now = {**{f"policy.{key}": value for key, value in policy.items()}, **deciding_settings(config)}
        if list_episodes(self.episodes):
            self._compare(now)
        write_json(self.record, {"version": _VERSION, "made_with": now})

    def _refuse_foreign(self) -> None:
        """Files beside which no evaluation was made are somebody else's: nothing is written or removed there."""
        if self.record.exists() or not self.root.is_dir():
            return
        ours = {p.name for p in (self.lock, self.episodes, self.videos, self.summary, self.figure, self.metrics)}
        names = (path.name for path in self.root.iterdir())
        foreign = [n for n in names if n not in {*ours, self.pictures.name} and not fnmatch(n, ".*.tmp*")]
        if foreign:
            raise RunFolderError(
                f"{self.root} holds {', '.join(sorted(foreign)[:3])} but no {self.record.name}: something else made "
                "it. Nothing was touched; pass an empty or new folder with --out"
            )

    def _compare(self, now: dict[str, Any]) -> None:
        try:
            content = json.loads(self.record.read_text(encoding="utf-8"))
            then = content["made_with"] if content["version"] == _VERSION else {}
            then.items()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunFolderError(
                f"{self.record}: does not say what the episodes beside it were made with ({error}); choose another "
                "folder with --out, or make them anew with --fresh"
            ) from None
        differing = [key for key in sorted(then.keys() | now.keys()) if then.get(key) != now.get(key)]
        if not differing:
            return
        lines = [f"  {key}: {_shown(then, key)} in the folder, {_shown(now, key)} now" for key in differing[:_SHOWN]]
        if len(differing) > _SHOWN:
            lines.append(f"  and {len(differing) - _SHOWN} more")
        raise RunFolderError(
            f"{self.root} holds episodes of another policy or of other settings:\n" + "\n".join(lines) + "\nChoose "
            "another folder with --out, or make them anew with --fresh"
        )

    def _clear(self) -> None:
        """Remove what an evaluation wrote, and nothing else."""
        made = (self.videos.glob("*_episode_*.mp4"), self.pictures.glob("episode_*.png"))
        for path in (*list_episodes(self.episodes), *made[0], *made[1]):
            path.unlink()
        for path in (self.summary, self.figure, self.metrics):
            path.unlink(missing_ok=True)


def _shown(settings: Mapping[str, Any], key: str) -> str:
    return json.dumps(settings[key]) if key in settings else "absent"
