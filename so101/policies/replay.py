"""`replay`: what was recorded, again. Good for dry runs and for finding out what the rest of the robot does."""

from __future__ import annotations

from typing import Any

from so101.config import Config
from so101.policies.base import Action, Observation, PolicyOptions
from so101.policies.episodes import read_episodes
from so101.policies.playback import Playback, batch_of, check_options, option_int


class ReplayPolicy:
    """Serves recorded episodes; looks at no observation beyond the size of its batch.

    `reset` takes `episode_index` and `step_index`. The place in the episode is one for all who ask.

    Raises:
        DataError: there is nothing to replay.
    """

    def __init__(self, config: Config, options: PolicyOptions) -> None:
        self._episodes, self.source = read_episodes(config, options)
        self._playback = Playback(config)
        self.modality = self._playback.interface.modality
        self.reset({"episode_index": options.episode})

    def reset(self, options: dict[str, Any] | None = None) -> dict[str, Any]:
        """Go to `step_index` (0) of `episode_index` (the same as before)."""
        options = check_options(options, ("episode_index", "step_index"), "replay")
        current = getattr(self, "_episode", 0)
        last = len(self._episodes) - 1
        episode = option_int(options, "episode_index", current, least=0, most=last)
        values = self._episodes[episode]
        self._playback.start(values, option_int(options, "step_index", 0, least=0, most=len(values) - 1))
        self._episode = episode
        return {"episode_index": episode, "episode_length": len(values), "source": self.source}

    def get_action(
        self, observation: Observation | None, options: dict[str, Any] | None = None
    ) -> tuple[Action, dict[str, Any]]:
        action, info = self._playback.next(batch_of(observation, options))
        return action, {**info, "episode_index": self._episode}
