"""Policies for tests, and how to serve them."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import numpy as np

from services.policy import PolicyServer
from so101.config import load_config
from so101.policies import Modality

MODALITY = Modality(
    video=("front", "wrist"),
    state={"single_arm": 5, "gripper": 1},
    action={"single_arm": 5, "gripper": 1},
    language="annotation.human.task_description",
    horizon=16,
    relative=("single_arm",),
)
SETTINGS = load_config().deploy.server


class StatePolicy:
    """Row k is the state + k. `gate`: closed, it does not answer. `fail`: raised instead of an answer."""

    def __init__(self, modality=MODALITY):
        self.modality = modality
        self.gate = threading.Event()
        self.gate.set()
        self.fail = None
        self.asked, self.resets = [], []

    def get_action(self, observation, options=None):
        self.asked.append((observation, options))
        assert self.gate.wait(20)
        if self.fail is not None:
            raise self.fail
        steps = np.arange(self.modality.horizon, dtype=np.float32)[None, :, None]
        return {key: value + steps for key, value in observation["state"].items()}, {"number": len(self.asked)}

    def reset(self, options=None):
        self.resets.append(options)
        return {"resets": len(self.resets)}


@contextmanager
def served(policy, *, endpoint="tcp://127.0.0.1:0", token=None, **settings):
    with PolicyServer(policy, endpoint, SETTINGS.model_copy(update=settings), token) as server:
        yield server


def wait_until(condition, timeout_s=20.0):
    """Poll `condition`; fails the test when it does not come true."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)
