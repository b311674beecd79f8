"""dataset.yaml."""

from __future__ import annotations

from so101.config.base import Section


class DatasetConfig(Section):
    """To be filled."""
