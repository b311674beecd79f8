"""Checks of the three files of statistics, by computing them again."""

from __future__ import annotations

import numpy as np

from so101.datasets.checks.base import VECTORS, Dataset, Findings, read_json
from so101.datasets.checks.files import read_lines
from so101.datasets.stats import column_stats, groot_stats, relative_stats, stats_faults
from so101.datasets.videos import video_stats
from so101.errors import DataError


@np.errstate(invalid="ignore")  # values that are not finite have a fault of their own
def check_episode_stats(data: Dataset, findings: Findings, *, images: bool) -> None:
    """LeRobot's. `images` also decodes every video."""
    rows = read_lines(data, findings, "episodes_stats.jsonl", "episode_index", {"stats": dict})
    findings.looked("episode_stats")
    if len(rows) != len(data.episodes):
        text = f"{len(rows)} usable lines for {len(data.episodes)} episodes"
        findings.error("episode_stats", f"meta/episodes_stats.jsonl: {text}")
        return
    for episode, row, columns in zip(data.episodes, rows, data.columns, strict=True):
        where, stats = f"meta/episodes_stats.jsonl episode {row['episode_index']}", row["stats"]
        if set(stats) != set(data.features):
            text = f"features are {sorted(stats)}, info.json says {sorted(data.features)}"
            findings.error("episode_stats", f"{where}: {text}")
            continue
        for key, column in (columns or {}).items():
            _compare(findings, "episode_stats", f"{where}: {key}", stats[key], column_stats(column))
        for key in data.video_keys if images else ():
            findings.reporter.advance(note="statistics of pictures")
            try:
                expected = video_stats(data.video_file(key, episode["episode_index"]), episode["length"])
            except DataError as error:
                findings.error("videos", str(error))
                continue
            _compare(findings, "episode_stats", f"{where}: {key}", stats[key], expected)


@np.errstate(invalid="ignore")
def check_groot_stats(data: Dataset, findings: Findings, *, horizon: int | None) -> None:
    """GR00T's, which it takes as they are when there. `horizon`: of the training, None: not known."""
    stats = read_json(data, findings, "stats.json", "stats")
    relative = read_json(data, findings, "relative_stats.json", "relative_stats")
    for check, value in (("stats", stats), ("relative_stats", relative)):
        if value is not None and not isinstance(value, dict):
            findings.error(check, f"meta/{check}.json: no mapping of names to statistics")
    if not data.complete:
        return
    findings.looked("stats", "relative_stats")
    for key, feature in data.features.items():
        if "float" in feature["dtype"] and isinstance(stats, dict):
            expected = groot_stats([columns[key] for columns in data.columns])
            _compare(findings, "stats", f"meta/stats.json: {key}", stats.get(key), expected)
    for group, written in (relative if isinstance(relative, dict) else {}).items():
        where = f"meta/relative_stats.json: {group}"
        try:
            rows = len(written["mean"])
            parts = [slice(data.modality[kind][group]["start"], data.modality[kind][group]["end"]) for kind in VECTORS]
        except (KeyError, TypeError):  # also without a modality.json that can be read
            findings.error("relative_stats", f"{where} is no statistics of a group of modality.json")
            continue
        if horizon is not None and rows != horizon:
            text = f"has {rows} steps, training.action_horizon is {horizon}; GR00T stops with an IndexError"
            findings.error("relative_stats", f"{where} {text}")
            continue
        states, actions = (
            [columns[key][:, part] for columns in data.columns]
            for key, part in zip(VECTORS.values(), parts, strict=True)
        )
        if states[0].shape[1] != actions[0].shape[1]:
            text = f"{group} has {states[0].shape[1]} values of the state and {actions[0].shape[1]} of the action"
            findings.error("modality", f"meta/modality.json: {text}; what is relative must have as many of both")
            continue
        _compare(findings, "relative_stats", where, written, relative_stats(states, actions, rows))


def _compare(findings: Findings, check: str, where: str, written, expected) -> None:
    for text in stats_faults(where, written, expected):
        findings.error(check, text)
