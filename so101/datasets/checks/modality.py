"""Checks of meta/modality.json: right in itself, and what the configuration trains on."""

from __future__ import annotations

from typing import Any

from so101.config import Config
from so101.datasets.checks.base import VECTORS, Dataset, Findings, listed, read_json


def read_modality(data: Dataset, findings: Findings) -> None:
    """Read it; entries that are none are left out after a fault, so that further checks can rely on the rest."""
    modality = read_json(data, findings, "modality.json", "modality")
    if not isinstance(modality, dict):
        return
    findings.looked("modality", "cameras", "language")
    data.modality = {}
    for kind in (*VECTORS, "video", "annotation"):
        entries = modality.get(kind)
        if not isinstance(entries, dict):
            findings.error("modality", f"meta/modality.json: {kind} must be a mapping of names to settings")
            entries = {}
        broken = [name for name, entry in entries.items() if not _well_formed(entry, kind)]
        for name in broken:
            needed = "whole numbers start and end" if kind in VECTORS else "a text original_key, or nothing"
            findings.error("modality", f"meta/modality.json: {kind}.{name} is {entries[name]!r}, needed: {needed}")
        data.modality[kind] = {name: entry for name, entry in entries.items() if name not in broken}


def _well_formed(entry: Any, kind: str) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("original_key", ""), str):
        return False
    ends = [entry.get("start"), entry.get("end")]
    return kind not in VECTORS or all(isinstance(end, int) and not isinstance(end, bool) for end in ends)


def check_modality(data: Dataset, findings: Findings) -> None:
    """Slices are inside the vectors and alike in state and action, names are features."""
    for kind, default in VECTORS.items():
        for name, part in data.modality[kind].items():
            size = data.features.get(part.get("original_key", default), {"shape": [0]})["shape"][0]
            if not 0 <= part["start"] < part["end"] <= size:
                text = f"{kind}.{name} is [{part['start']}, {part['end']}], outside {size} values"
                findings.error("modality", f"meta/modality.json: {text}")
    for kind, check in (("video", "cameras"), ("annotation", "language")):
        for name, part in data.modality[kind].items():
            key = part.get("original_key", f"annotation.{name}")
            if key not in data.features:
                text = f"{kind}.{name} refers to {key!r}, no feature of info.json"
                findings.error(check, f"meta/modality.json: {text}")
            elif kind == "video" and data.features[key]["dtype"] != "video":
                findings.error(check, f"meta/modality.json: video.{name} refers to {key!r}, which is no video")


def check_trained_on(data: Dataset, findings: Findings, config: Config) -> None:
    """What dataset.yaml names is there, under these names: GR00T stops at the first key that is not."""
    settings, horizon = config.dataset, config.training.action_horizon
    findings.looked("cameras", "horizon")
    for name in settings.cameras.values():
        key = f"observation.images.{name}"
        if key not in data.video_keys:
            text = f"camera {name} (dataset.cameras) has no feature {key}; info.json has {data.video_keys}"
            findings.error("cameras", f"meta/info.json: {text}")
        elif data.modality is not None and name not in data.modality["video"]:
            text = f"camera {name} (dataset.cameras) is missing; video has {sorted(data.modality['video'])}"
            findings.error("cameras", f"meta/modality.json: {text}")
        elif data.episodes and not any(data.videos.get(key, [])):
            findings.error("cameras", f"videos/: camera {name} (dataset.cameras) has no readable video at all")
    if data.modality is not None:
        _groups(data, findings, config)
    short = [e["episode_index"] for e in data.episodes if e["length"] < horizon]
    if short:
        text = f"{listed(short)} of {len(data.episodes)}: shorter than training.action_horizon ({horizon} frames)"
        (findings.error if len(short) == len(data.episodes) else findings.warn)("horizon", text)


def _groups(data: Dataset, findings: Findings, config: Config) -> None:
    settings = config.dataset.modality
    for kind in VECTORS:
        for name, (start, end) in settings.groups.items():
            found = data.modality[kind].get(name)
            cut = [found["start"], found["end"]] if found else None
            if cut != [start, end]:
                text = f"{kind}.{name} is {cut}, dataset.modality.groups says [{start}, {end}]"
                findings.error("modality", f"meta/modality.json: {text}")
    if settings.language_key not in data.modality["annotation"]:
        text = f"annotation has no {settings.language_key!r} (dataset.modality.language_key)"
        findings.error("language", f"meta/modality.json: {text}")
