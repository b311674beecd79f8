"""cameras.yaml."""

from __future__ import annotations

from so101.config.base import Section


class CamerasConfig(Section):
    """To be filled."""
