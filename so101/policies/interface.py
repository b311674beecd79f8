"""What our own policies give: chunks of joint targets in the groups and units of dataset.yaml. `so101.control.boundary`
is the other end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from so101.config import Config
from so101.datasets.lerobot_v21 import dataset_units
from so101.datasets.units import rad_to_lerobot
from so101.policies.base import Action, Modality


class PolicyInterface:
    """Modality, groups and units."""

    def __init__(self, config: Config) -> None:
        groups = config.dataset.modality.groups
        self._slices = {name: slice(*span) for name, span in groups.items()}
        self._units = dataset_units(config)
        sizes = {name: end - start for name, (start, end) in groups.items()}
        self.modality = Modality(
            video=tuple(config.dataset.cameras.values()),
            state=sizes,
            action=dict(sizes),
            language=f"annotation.{config.dataset.modality.language_key}",
            horizon=config.deploy.control.action_horizon,
            relative=tuple(config.dataset.modality.relative),
        )

    def action(self, values: np.ndarray, batch: int = 1) -> Action:
        """A chunk (H, 6) in dataset units as every row of a batch."""
        return {
            name: np.repeat(values[None, :, part].astype(np.float32), batch, axis=0)
            for name, part in self._slices.items()
        }

    def split(self, chunks: np.ndarray) -> Action:
        """Chunks (B, H, 6) in dataset units by group."""
        return {name: np.ascontiguousarray(chunks[:, :, part], np.float32) for name, part in self._slices.items()}

    def modality_for(self, cameras: Sequence[str], horizon: int) -> Modality:
        """That of a policy that looks at `cameras` only and gives `horizon` rows."""
        return replace(self.modality, video=tuple(cameras), horizon=horizon)

    @property
    def units(self) -> tuple[np.ndarray, np.ndarray]:
        """(6,) dataset units a rad, (6,) dataset units at 0 rad."""
        return self._units.scale, self._units.offset

    def to_units(self, q: np.ndarray) -> np.ndarray:
        """(..., 6) rad in dataset units, kept within what LeRobot reports, as in our datasets."""
        return self._units.clip(rad_to_lerobot(q, self._units))
