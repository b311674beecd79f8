"""Cameras: `make_camera(name, config)` gives the one cameras.yaml names, `CameraSet` runs several side by side."""

from __future__ import annotations

from importlib import import_module

from so101.cameras.base import Camera, CameraError, Frame, NoFrameYet
from so101.cameras.camera_set import CameraSet
from so101.cameras.capture import CameraState
from so101.cameras.scene_state import SceneState, StateSource
from so101.config import Config
from so101.errors import did_you_mean

__all__ = [
    "KINDS",
    "Camera",
    "CameraError",
    "CameraSet",
    "CameraState",
    "Frame",
    "NoFrameYet",
    "SceneState",
    "StateSource",
    "make_camera",
    "make_cameras",
]

KINDS = {  # loaded when used: each has its own SDK
    "twin": "so101.cameras.twin:TwinCamera",
    "v4l2": "so101.cameras.v4l2:V4l2Camera",
    "realsense": "so101.cameras.realsense:RealsenseCamera",
    "playback": "so101.cameras.playback:PlaybackCamera",
    "synthetic": "so101.cameras.synthetic:SyntheticCamera",
}


def make_camera(name: str, config: Config, state: StateSource | None = None) -> Camera:
    """Camera `name` of cameras.yaml from its source, unopened. `state`: what a twin camera shows.

    Raises:
        CameraError: no camera has that name; a twin camera without `state`.
    """
    if name not in config.cameras.names:
        known = f"cameras.yaml has {', '.join(config.cameras.names)}{did_you_mean(name, config.cameras.names)}"
        raise CameraError(f"no camera {name!r}; {known}")
    source = config.cameras.source(name)
    module, _, cls = KINDS[source.kind].partition(":")
    kind = getattr(import_module(module), cls)
    return kind(name, config, state) if source.kind == "twin" else kind(name, config)


def make_cameras(config: Config, names: tuple[str, ...] = (), state: StateSource | None = None) -> list[Camera]:
    """Cameras `names`, all of cameras.yaml when none is named."""
    return [make_camera(name, config, state) for name in names or config.cameras.names]
