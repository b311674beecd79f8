"""Policies in closed loop: `run_episode` puts a policy into a `World` that waits for it and keeps what happened."""

from so101.evaluation.closed_loop.episode import run_episode
from so101.evaluation.closed_loop.record import Episode, list_episodes, load_episode, save_episode
from so101.evaluation.closed_loop.stages import STAGES
from so101.evaluation.closed_loop.twin_world import TwinWorld
from so101.evaluation.closed_loop.world import World

__all__ = ["STAGES", "Episode", "TwinWorld", "World", "list_episodes", "load_episode", "run_episode", "save_episode"]
