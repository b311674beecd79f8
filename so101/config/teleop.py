"""teleop.yaml."""

from __future__ import annotations

from so101.config.base import Section


class TeleopConfig(Section):
    """To be filled."""
