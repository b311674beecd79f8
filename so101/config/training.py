"""training.yaml."""

from __future__ import annotations

from so101.config.base import Section


class TrainingConfig(Section):
    """To be filled."""
