"""Joint angles of the twin and camera frames <-> what a policy takes and gives. The one place where this is written."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from so101.config import Config
from so101.datasets.lerobot_v21 import dataset_units
from so101.datasets.units import lerobot_to_rad, rad_to_lerobot
from so101.policies.base import Action, Modality, Observation, PolicyError


class PolicyInterface:
    """Groups, cameras, language key and units as dataset.yaml gives them."""

    def __init__(self, config: Config) -> None:
        groups = config.dataset.modality.groups
        self._slices = {name: slice(*span) for name, span in groups.items()}
        self._units = dataset_units(config)
        self._num_joints = len(config.robot.joints)
        sizes = {name: end - start for name, (start, end) in groups.items()}
        self.modality = Modality(
            video=tuple(config.dataset.cameras.values()),
            state=sizes,
            action=dict(sizes),
            language=f"annotation.{config.dataset.modality.language_key}",
            horizon=config.deploy.control.action_horizon,
            relative=tuple(config.dataset.modality.relative),
        )

    def observation(self, q: np.ndarray, images: Mapping[str, np.ndarray], text: str) -> Observation:
        """What to ask a policy with, batch 1.

        Args:
            q: (6,) measured joints, rad.
            images: name in the dataset -> (H, W, 3) uint8 RGB.
            text: the task in words.
        """
        values = self.to_units(q).astype(np.float32)
        return {
            "video": {name: np.asarray(image)[None, None] for name, image in images.items()},
            "state": {name: values[None, None, part] for name, part in self._slices.items()},
            "language": {self.modality.language: [[text]]},
        }

    def targets(self, action: Action, row: int = 0) -> np.ndarray:
        """(H, 6) joint targets, rad, of one row of the batch.

        Raises:
            PolicyError: a group is missing or of another size.
        """
        for name, part in self._slices.items():
            wanted, found = part.stop - part.start, np.shape(action.get(name))
            if len(found) != 3 or found[2] != wanted:
                raise PolicyError(
                    f"the policy's action has {name!r} of shape {found or 'none'}; needed is (batch, horizon, {wanted})"
                )
        horizon = min(action[name].shape[1] for name in self._slices)
        values = np.zeros((horizon, self._num_joints))
        for name, part in self._slices.items():
            values[:, part] = action[name][row, :horizon]
        return lerobot_to_rad(values, self._units)

    def action(self, values: np.ndarray, batch: int = 1) -> Action:
        """A chunk (H, 6) in dataset units as every row of a batch."""
        return {
            name: np.repeat(values[None, :, part].astype(np.float32), batch, axis=0)
            for name, part in self._slices.items()
        }

    def to_units(self, q: np.ndarray) -> np.ndarray:
        """(..., 6) rad in dataset units, kept within what LeRobot reports, as in our datasets."""
        return self._units.clip(rad_to_lerobot(q, self._units))
