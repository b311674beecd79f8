"""Policies: an observation in, a chunk of joint targets out. `make_policy` gives one by name."""

from so101.policies.base import Action, Modality, Observation, Policy, PolicyOptions
from so101.policies.registry import POLICIES, make_policy

__all__ = ["POLICIES", "Action", "Modality", "Observation", "Policy", "PolicyOptions", "make_policy"]
