"""render.yaml."""

from __future__ import annotations

from so101.config.base import Section


class RenderConfig(Section):
    """To be filled."""
