"""Between the loop (radians, camera names) and a policy: LeRobot units, groups of joints, the dataset's names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from so101.cameras.base import Frame
from so101.config import Config
from so101.datasets.lerobot_v21 import dataset_units
from so101.datasets.units import lerobot_to_rad, rad_to_lerobot
from so101.errors import ConfigError, So101Error, did_you_mean


class PolicyAnswerError(So101Error):
    """A policy answered with something that is no chunk of joint targets."""

    exit_code = 9


class PolicyBoundary:
    """Makes observations and reads actions (B = 1, T = 1), as dataset.yaml names and scales them.

    Args:
        videos: names of the pictures the policy wants (front, wrist, ...); all that dataset.cameras has when None.

    Raises:
        ConfigError: it wants a picture that no camera gives.
    """

    def __init__(self, config: Config, videos: Collection[str] | None = None) -> None:
        self._units = dataset_units(config)
        self._groups = {name: slice(*part) for name, part in config.dataset.modality.groups.items()}
        self._language_key = f"annotation.{config.dataset.modality.language_key}"
        camera_of = {picture: camera for camera, picture in config.dataset.cameras.items()}
        self._joints = len(config.robot.joints)
        self._cameras = {}
        for name in camera_of if videos is None else videos:
            if name not in camera_of:
                raise ConfigError(
                    f"the policy wants pictures called {name!r}; dataset.cameras has {', '.join(camera_of)}"
                    f"{did_you_mean(name, camera_of)}"
                )
            self._cameras[name] = camera_of[name]

    @property
    def cameras(self) -> list[str]:
        """Names in cameras.yaml of the cameras the policy looks through."""
        return list(self._cameras.values())

    def oldest_frame_s(self, frames: Mapping[str, Frame]) -> float:
        """Age of the oldest frame the policy would be shown, s; 0 when it looks through no camera."""
        return max((frames[camera].age_s for camera in self._cameras.values() if camera in frames), default=0.0)

    def observation(self, q: np.ndarray, frames: Mapping[str, Frame], language: str) -> dict[str, Any]:
        """What the policy is asked with. Images are not copied.

        Args:
            q: (6,) rad.
            frames: by camera name.
        """
        state = self._units.clip(rad_to_lerobot(q, self._units)).astype(np.float32)
        return {
            "video": {name: frames[camera].image[None, None] for name, camera in self._cameras.items()},
            "state": {name: state[part][None, None] for name, part in self._groups.items()},
            "language": {self._language_key: [[language]]},
        }

    def joint_targets(self, action: Mapping[str, Any]) -> np.ndarray:
        """(H, 6) rad of an action: group -> (1, H, D) in LeRobot units.

        Raises:
            PolicyAnswerError: a group is missing, of another shape than the others, or not finite.
        """
        faults = [f"group {name!r} is missing" for name in self._groups if name not in action]
        groups = {name: np.asarray(action[name]) for name in self._groups if name in action}
        for name, values in groups.items():
            part = self._groups[name]
            if values.ndim != 3 or values.shape[0] != 1 or values.shape[2] != part.stop - part.start:
                faults.append(f"{name} has shape {values.shape}, wanted is (1, steps, {part.stop - part.start})")
            elif values.dtype.kind not in "fiu" or not np.isfinite(values).all():
                faults.append(f"{name} holds values that are no finite numbers")
        lengths = {values.shape[1] for values in groups.values() if values.ndim == 3}
        if not faults and (len(lengths) > 1 or 0 in lengths):
            faults.append(f"groups have {' and '.join(map(str, sorted(lengths)))} steps")
        if faults:
            raise PolicyAnswerError(
                f"the policy's action cannot be executed: {'; '.join(faults)}; groups are those of dataset.modality"
            )
        rows = np.zeros((lengths.pop(), self._joints))
        for name, values in groups.items():
            rows[:, self._groups[name]] = values[0]
        return lerobot_to_rad(rows, self._units)
