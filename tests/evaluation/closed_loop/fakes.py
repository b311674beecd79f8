"""A world without physics and a policy without thoughts: what they are told is what happens."""

import numpy as np

from so101.policies.base import Modality
from so101.policies.interface import PolicyInterface


class StillWorld:
    """Joints are where they were sent, objects where `script` puts them: frame -> name -> (7,) pose."""

    def __init__(self, config, script=None):
        from so101.tasks.placement import nominal_placements

        self.start = np.array([joint.home_rad for joint in config.robot.joints])
        self.nominal = nominal_placements(config)
        self.script = script or (lambda frame: {})
        self.cameras = config.cameras.names
        self.physics_state, self.meta = np.zeros(3), {"randomisation": {}}
        self.looks = []

    def reset(self, seed):
        self.q, self.frame, self.seed = self.start.copy(), 0, seed

    def look(self):
        self.looks.append(self.frame)
        return self.q.copy(), {name: np.full((4, 6, 3), self.frame, np.uint8) for name in self.cameras}

    def measured(self):
        return self.q.copy()

    def act(self, q_target):
        self.q = np.clip(q_target, -1.5, 1.5)
        self.frame += 1
        return self.q.copy()

    def objects(self):
        return {**self.nominal, **self.script(self.frame)}

    def close(self):
        pass


class Ramp:
    """Chunk n is constant: every row has all joints at home plus n + 1 times `step` rad."""

    def __init__(self, config, *, sees=True, step=0.01, done_after=None, fails_at=None, horizon=16):
        self.interface = PolicyInterface(config)
        cameras = tuple(config.dataset.cameras.values()) if sees else ()
        modality = self.interface.modality
        self.modality = Modality(cameras, modality.state, modality.action, modality.language, horizon)
        self.home = np.array([joint.home_rad for joint in config.robot.joints])
        self.step, self.done_after, self.fails_at, self.horizon = step, done_after, fails_at, horizon
        self.observations, self.options = [], []

    def reset(self, options=None):
        self.options.append(options)
        return {"began": True}

    def get_action(self, observation, options=None):
        self.observations.append(observation)
        n = len(self.observations)
        if n == self.fails_at:
            raise ValueError("no idea what to do")
        rows = np.repeat(self.target(n - 1)[None], self.horizon, axis=0)
        return self.interface.action(self.interface.to_units(rows)), {"done": n == self.done_after}

    def target(self, chunk):
        return self.home + (chunk + 1) * self.step
