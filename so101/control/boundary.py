"""Between the loop (radians, camera names) and a policy: which cameras it looks through, what counts as an answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from so101.cameras.base import Frame
from so101.config import Config
from so101.errors import ConfigError, did_you_mean
from so101.policies.base import Action, Observation, PolicyError
from so101.policies.interface import PolicyInterface


class PolicyBoundary:
    """`PolicyInterface` by camera names.

    Args:
        videos: names of the pictures the policy wants (front, wrist, ...).

    Attributes:
        cameras: the cameras of cameras.yaml it looks through.

    Raises:
        ConfigError: it wants a picture that no camera gives.
    """

    def __init__(self, config: Config, videos: Collection[str]) -> None:
        self._interface = PolicyInterface(config)
        camera_of = {picture: camera for camera, picture in config.dataset.cameras.items()}
        for name in videos:
            if name not in camera_of:
                raise ConfigError(
                    f"the policy wants pictures called {name!r}; dataset.cameras has {', '.join(camera_of)}"
                    f"{did_you_mean(name, camera_of)}"
                )
        self._camera_of = {name: camera_of[name] for name in videos}
        self.cameras = tuple(self._camera_of.values())

    def oldest_frame_s(self, frames: Mapping[str, Frame]) -> float:
        """Age of the oldest frame the policy would be shown, s; 0 when it looks through no camera."""
        return max((frames[camera].age_s for camera in self.cameras if camera in frames), default=0.0)

    def observation(self, q: np.ndarray, frames: Mapping[str, Frame], language: str) -> Observation:
        """What the policy is asked with: `q` (6,) rad, frames by camera name. Images are not copied."""
        images = {name: frames[camera].image for name, camera in self._camera_of.items()}
        return self._interface.observation(q, images, language)

    def joint_targets(self, action: Action) -> np.ndarray:
        """(H, 6) rad.

        Raises:
            PolicyError: a group is missing, of another size, empty, or not finite.
        """
        rows = self._interface.targets(action)
        if len(rows) == 0 or not np.isfinite(rows).all():
            what = "is empty" if len(rows) == 0 else "holds values that are no finite numbers"
            raise PolicyError(f"the policy's chunk {what}; it is not executed")
        return rows
