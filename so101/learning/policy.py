"""The embedded policy as the policy server runs it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from so101.config import Config
from so101.learning.checkpoint import load_policy, task_index, to_device
from so101.learning.frames import resize_picture
from so101.policies.base import Action, Observation, PolicyError
from so101.policies.checkpoint import Checkpoint
from so101.policies.interface import PolicyInterface
from so101.policies.playback import check_options, option_int

_MOST = 2**63 - 1


class ChunkPolicy:
    """Pictures, joints and task text in, a chunk out. `reset` takes `seed`: of the noise that flow matching begins at;
    equal seeds and observations give equal chunks.

    Raises:
        PolicyError: the checkpoint is of something else than the configuration, each difference named.
    """

    def __init__(self, config: Config, checkpoint: Checkpoint) -> None:
        self._trained, self._network = load_policy(checkpoint, config)
        self._device = to_device(self._network, config.training.embedded.device)
        self._acting = config.training.embedded.acting
        self._interface = PolicyInterface(config)
        self.modality = checkpoint.modality
        self._generator = torch.Generator()
        self.reset()

    def reset(self, options: dict[str, Any] | None = None) -> dict[str, Any]:
        options = check_options(options, ("seed",), "embedded")
        self._generator.manual_seed(option_int(options, "seed", 0, least=0, most=_MOST))
        return {"trained_steps": self._trained.training.get("steps", 0)}

    def get_action(
        self, observation: Observation | None, options: dict[str, Any] | None = None
    ) -> tuple[Action, dict[str, Any]]:
        if observation is None:
            raise PolicyError("embedded: no observation; it needs pictures, joints and the task text")
        trained = self._trained
        texts = [row[0] for row in observation["language"][self.modality.language]]
        tasks = torch.tensor([task_index(trained, text) for text in texts])
        state = np.concatenate([observation["state"][group][:, -1] for group in self.modality.state], axis=1)
        pictures = np.stack([self._pictures(observation["video"][camera][:, -1]) for camera in trained.cameras])
        shape = (len(state), trained.architecture.horizon, trained.architecture.joints)
        noise = self._acting.noise * torch.randn(shape, generator=self._generator)
        with torch.inference_mode():
            values = self._network.act(
                torch.from_numpy(pictures).to(self._device).permute(0, 1, 4, 2, 3).float().div(255),
                torch.from_numpy(trained.normalisation.encode_state(state)).to(self._device),
                tasks.to(self._device),
                self._acting.steps,
                noise.to(self._device),
            )
        chunk = trained.normalisation.decode_chunk(values.cpu().numpy(), state)
        return self._interface.split(chunk), {}

    def _pictures(self, pictures: np.ndarray) -> np.ndarray:
        """(B, H, W, 3) uint8 -> the same as the network sees them."""
        size = self._trained.pictures
        y, x = size.margin_px, size.margin_px
        cropped = [resize_picture(p, size)[y : y + size.height_px, x : x + size.width_px] for p in pictures]
        return np.stack(cropped)


def make_chunk_policy(config: Config, checkpoint: Checkpoint) -> ChunkPolicy:
    """For `so101.policies.checkpoint.LEARNED`."""
    return ChunkPolicy(config, checkpoint)
