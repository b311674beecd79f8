"""teleop.yaml: where seed demonstrations come from."""

from __future__ import annotations

from so101.config.base import Section
from so101.config.operator import OperatorConfig
from so101.config.recordings import RecordingsConfig, ReplayConfig, UnitDetectionConfig


class TeleopConfig(Section):
    """Seed sources."""

    operator: OperatorConfig
    recordings: RecordingsConfig
    unit_detection: UnitDetectionConfig
    replay: ReplayConfig
