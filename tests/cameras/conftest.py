from __future__ import annotations

import pytest

from so101.config import Config, load_config


@pytest.fixture(scope="session")
def configured():
    """`configured(side="{kind: synthetic}", capture={...})`: the configuration with these sources and settings."""

    def make(*, capture: dict | None = None, overrides: tuple[str, ...] = (), **sources: str) -> Config:
        sets = [f"cameras.sources.{name}={source}" for name, source in sources.items()]
        sets += [f"cameras.capture.{key}={value}" for key, value in (capture or {}).items()]
        return load_config(overrides=[*sets, *overrides])

    return make


@pytest.fixture
def quick(configured):
    """Settings of capture with short waits."""
    waits = {
        "read_timeout_s": 0.2,
        "reopen_min_s": 0.01,
        "reopen_max_s": 0.04,
        "open_timeout_s": 20.0,
        "max_age_s": 60.0,
    }
    return configured(capture=waits).cameras.capture
