"""Reinforcement learning on a task family: SAC and RLPD (`./twin rl`), and the policies that come out.

``policy = load_policy("models/reach"); action = policy.act(obs)``: (N, D) observations to (N, 6) actions in [-1, 1].

Letters: N lanes, B samples of a batch, D words of an observation, A = 6 actions, E critics.
"""

from so101.learning.rl.checkpoint import RlPolicy, load_policy

__all__ = ["RlPolicy", "load_policy"]
