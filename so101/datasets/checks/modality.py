"""Checks of meta/modality.json: right in itself, and what the configuration trains on."""

from __future__ import annotations

from so101.config import Config
from so101.datasets.checks.base import VECTORS, Dataset, Findings, listed, read_json


def read_modality(data: Dataset, findings: Findings) -> None:
    modality = read_json(data, findings, "modality.json", "modality")
    data.modality = modality if isinstance(modality, dict) else None


def check_modality(data: Dataset, findings: Findings) -> None:
    """Slices are inside the vectors, names are features."""
    findings.looked("modality")
    for kind, default in VECTORS.items():
        for name, part in _entries(data, findings, kind):
            size = data.features.get(part.get("original_key", default), {"shape": [0]})["shape"][0]
            start, end = part.get("start"), part.get("end")
            if not (isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= size):
                text = f"{kind}.{name} is [{start}, {end}], outside {size} values"
                findings.error("modality", f"meta/modality.json: {text}")
    for kind, check in (("video", "cameras"), ("annotation", "language")):
        findings.looked(check)
        for name, part in _entries(data, findings, kind):
            key = part.get("original_key", f"annotation.{name}")
            if key not in data.features:
                text = f"{kind}.{name} refers to {key!r}, no feature of info.json"
                findings.error(check, f"meta/modality.json: {text}")
            elif kind == "video" and data.features[key]["dtype"] != "video":
                findings.error(check, f"meta/modality.json: video.{name} refers to {key!r}, which is no video")


def _entries(data: Dataset, findings: Findings, kind: str) -> list[tuple[str, dict]]:
    entries = data.modality.get(kind)
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        findings.error("modality", f"meta/modality.json: {kind} must be a mapping of names to settings")
        return []
    return list(entries.items())


def check_trained_on(data: Dataset, findings: Findings, config: Config) -> None:
    """What dataset.yaml names is there, under these names: GR00T stops at the first key that is not."""
    settings, horizon = config.dataset, config.training.action_horizon
    findings.looked("cameras", "horizon")
    for name in settings.cameras.values():
        key = f"observation.images.{name}"
        if key not in data.video_keys:
            text = f"camera {name} (dataset.cameras) has no feature {key}; info.json has {data.video_keys}"
            findings.error("cameras", f"meta/info.json: {text}")
        elif data.modality is not None and name not in (data.modality.get("video") or {}):
            text = f"camera {name} (dataset.cameras) is missing; video has {sorted(data.modality.get('video') or {})}"
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
            found = (data.modality.get(kind) or {}).get(name)
            cut = [found.get("start"), found.get("end")] if isinstance(found, dict) else None
            if cut != [start, end]:
                text = f"{kind}.{name} is {cut}, dataset.modality.groups says [{start}, {end}]"
                findings.error("modality", f"meta/modality.json: {text}")
    if settings.language_key not in (data.modality.get("annotation") or {}):
        text = f"annotation has no {settings.language_key!r} (dataset.modality.language_key)"
        findings.error("language", f"meta/modality.json: {text}")
