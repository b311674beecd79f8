"""deploy.yaml."""

from __future__ import annotations

from so101.config.base import Section


class DeployConfig(Section):
    """To be filled."""
