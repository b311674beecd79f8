from dataclasses import replace

import numpy as np
import pytest

from so101.config import load_config
from so101.control.boundary import PolicyBoundary
from so101.errors import ConfigError
from so101.policies.base import PolicyError
from so101.policies.interface import PolicyInterface

CONFIG = load_config()
MODALITY = replace(PolicyInterface(CONFIG).modality, video=())


def test_targets_are_what_our_policies_wrote():
    rng = np.random.default_rng(3)
    lower, upper = (
        np.array([getattr(joint, key) for joint in CONFIG.robot.joints]) for key in ("lower_rad", "upper_rad")
    )
    q = rng.uniform(lower, upper, (16, 6))
    interface = PolicyInterface(CONFIG)
    action = interface.action(interface.to_units(q))
    np.testing.assert_allclose(PolicyBoundary(CONFIG, MODALITY).joint_targets(action), q, atol=1e-5)


def test_the_state_is_what_a_dataset_would_hold():
    q = np.array([0.1, -0.2, 0.3, 1.0, 1.5, 0.0])
    state = PolicyBoundary(CONFIG, MODALITY).observation(q, {}, "go")["state"]
    np.testing.assert_allclose(np.concatenate(list(state.values()), axis=-1)[0, 0], PolicyInterface(CONFIG).to_units(q))


@pytest.mark.parametrize(
    "changes,text",
    [
        ({"gripper": None}, "group 'gripper' is missing"),
        ({"gripper": np.zeros((1, 16))}, r"'gripper' has shape \(1, 16\), needed is \(1, horizon, 1\)"),
        ({"single_arm": np.zeros((2, 16, 5))}, r"'single_arm' has shape \(2, 16, 5\)"),
        ({"single_arm": np.zeros((1, 0, 5))}, "'single_arm' has shape"),
        ({"single_arm": np.full((1, 16, 5), np.inf)}, "'single_arm' holds values that are no finite numbers"),
        ({"single_arm": np.full((1, 16, 5), "x")}, "'single_arm' holds values that are no finite numbers"),
    ],
)
def test_what_is_no_chunk_is_refused_by_name(changes, text):
    action = {"single_arm": np.zeros((1, 16, 5)), "gripper": np.zeros((1, 16, 1)), **changes}
    action = {name: values for name, values in action.items() if values is not None}
    with pytest.raises(PolicyError, match=text):
        PolicyBoundary(CONFIG, MODALITY).joint_targets(action)


def test_groups_of_different_length_end_with_the_shorter():
    action = {"single_arm": np.zeros((1, 16, 5)), "gripper": np.zeros((1, 12, 1))}
    assert PolicyBoundary(CONFIG, MODALITY).joint_targets(action).shape == (12, 6)


def test_a_policy_that_wants_a_history_is_refused():
    with pytest.raises(ConfigError, match="2 pictures and 1 states at once"):
        PolicyBoundary(CONFIG, replace(MODALITY, video_steps=2))
