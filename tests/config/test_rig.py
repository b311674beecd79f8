"""Rig files: laid over robot.yaml, under --set; refused by file and key."""

from __future__ import annotations

import pytest

from so101.config import load_config
from so101.errors import ConfigError


def write(tmp_path, text: str):
    path = tmp_path / "my_arm.yaml"
    path.write_text(text)
    return path


def test_a_rig_changes_what_it_names_and_nothing_else(tmp_path):
    rig = write(tmp_path, "joints: {elbow_flex: {stiffness_nm_per_rad: 11.5, delay_s: 0.04}}")
    plain, with_rig = load_config(), load_config(rig=rig)
    joint = with_rig.robot.joints[2]
    assert (joint.stiffness_nm_per_rad, joint.delay_s) == (11.5, 0.04)
    values = {"stiffness_nm_per_rad": 11.5, "delay_s": 0.04}
    assert joint == plain.robot.joints[2].model_copy(update=values)
    assert with_rig.robot.joints[:2] == plain.robot.joints[:2]
    assert with_rig.model_copy(update={"robot": plain.robot}) == plain


def test_set_wins_over_the_rig(tmp_path):
    rig = write(tmp_path, "joints: {elbow_flex: {friction_nm: 0.5}}")
    assert load_config(rig=rig, overrides=["robot.joints.2.friction_nm=0.7"]).robot.joints[2].friction_nm == 0.7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("joints: {elbow: {delay_s: 0.01}}", "my_arm.yaml: joints.elbow: no such joint.*did you mean 'elbow_flex'"),
        ("joints: {elbow_flex: {delay: 0.01}}", "unknown key 'joints.elbow_flex.delay'.*did you mean 'delay_s'"),
        (
            "joints: {elbow_flex: {delay_s: -1}}",
            "my_arm.yaml: joints.elbow_flex.delay_s is -1; input should be greater",
        ),
        (
            "joints: {elbow_flex: {delay_s: 0.4}}",
            "my_arm.yaml over robot.yaml: .*delay_s reaches 0.4; max_delay_s allows",
        ),
        ("other: {}", "key 'joints' is missing"),
        ("[1, 2]", "must be a mapping"),
    ],
)
def test_a_wrong_rig_is_refused_by_file_and_key(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        load_config(rig=write(tmp_path, text))


def test_a_missing_rig_says_how_to_make_one(tmp_path):
    with pytest.raises(ConfigError, match="--rig .*no such configuration file; `./twin identify RECORDING --out FILE`"):
        load_config(rig=tmp_path / "none.yaml")
