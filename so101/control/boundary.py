"""Between the loop (radians, camera names) and a policy (LeRobot units, groups of joints, names of the dataset). What a
policy of ours gives is written by `so101.policies.interface`; this is the other end."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from so101.cameras.base import Frame
from so101.config import Config
from so101.datasets.lerobot_v21 import dataset_units
from so101.datasets.units import lerobot_to_rad, rad_to_lerobot
from so101.errors import ConfigError, did_you_mean
from so101.policies.base import Action, Modality, Observation, PolicyError


class PolicyBoundary:
    """Makes observations (B = 1, T = 1) and reads actions.

    Args:
        modality: of the policy: which pictures it wants (front, wrist, ...), the key of the task text.

    Raises:
        ConfigError: it wants a picture that no camera gives, or more than one moment at a time.
    """

    def __init__(self, config: Config, modality: Modality) -> None:
        self._units = dataset_units(config)
        self._groups = {name: slice(*part) for name, part in config.dataset.modality.groups.items()}
        self._language_key = modality.language
        self._joints = len(config.robot.joints)
        camera_of = {picture: camera for camera, picture in config.dataset.cameras.items()}
        if (modality.video_steps, modality.state_steps) != (1, 1):
            raise ConfigError(
                f"the policy wants {modality.video_steps} pictures and {modality.state_steps} states at once; "
                "the control loop shows it one moment: take a policy with delta_indices [0]"
            )
        for name in modality.video:
            if name not in camera_of:
                raise ConfigError(
                    f"the policy wants pictures called {name!r}; dataset.cameras has {', '.join(camera_of)}"
                    f"{did_you_mean(name, camera_of)}"
                )
        self._camera_of = {name: camera_of[name] for name in modality.video}

    def observation(self, q: np.ndarray, frames: Mapping[str, Frame], language: str) -> Observation:
        """What the policy is asked with: `q` (6,) rad, frames by camera name. Images are not copied."""
        state = self._units.clip(rad_to_lerobot(q, self._units)).astype(np.float32)
        return {
            "video": {name: frames[camera].image[None, None] for name, camera in self._camera_of.items()},
            "state": {name: state[None, None, part] for name, part in self._groups.items()},
            "language": {self._language_key: [[language]]},
        }

    def joint_targets(self, action: Action) -> np.ndarray:
        """(H, 6) rad of an action: group -> (1, H, D).

        Raises:
            PolicyError: a group is missing, of another shape than it should have, or not finite; all faults at once.
        """
        groups = {name: np.asarray(action[name]) for name in self._groups if name in action}
        faults = [f"group {name!r} is missing" for name in self._groups if name not in groups]
        for name, values in groups.items():
            width = self._groups[name].stop - self._groups[name].start
            if values.ndim != 3 or values.shape[0] != 1 or values.shape[1] == 0 or values.shape[2] != width:
                faults.append(f"{name!r} has shape {values.shape}, needed is (1, horizon, {width})")
            elif values.dtype.kind not in "fiu" or not np.isfinite(values).all():
                faults.append(f"{name!r} holds values that are no finite numbers")
        if faults:
            raise PolicyError(f"the policy's chunk cannot be executed: {'; '.join(faults)}")
        horizon = min(values.shape[1] for values in groups.values())
        rows = np.zeros((horizon, self._joints))
        for name, values in groups.items():
            rows[:, self._groups[name]] = values[0, :horizon]
        return lerobot_to_rad(rows, self._units)
