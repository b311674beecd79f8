"""Policies by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from so101.config import Config
from so101.errors import did_you_mean
from so101.policies.base import Policy, PolicyError, PolicyOptions

POLICIES = {
    "replay": "so101.policies.replay:ReplayPolicy",
    "expert": "so101.policies.expert:ExpertPolicy",
    "embedded": "so101.policies.checkpoint:make_embedded",
}
"""Name -> "module:callable", called with (config, options)."""


def make_policy(
    config: Config,
    name: str,
    options: PolicyOptions | None = None,
    policies: Mapping[str, str] = POLICIES,
) -> Policy:
    """The policy called `name`.

    Raises:
        PolicyError: unknown name, or what the policy raises.
    """
    if name not in policies:
        raise PolicyError(f"unknown policy {name!r}; policies: {', '.join(policies)}{did_you_mean(name, policies)}")
    module, _, target = policies[name].partition(":")
    return getattr(import_module(module), target)(config, options or PolicyOptions())
