from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from so101.config.rl import RlActorConfig
from so101.learning.rl import RlPolicy, load_policy
from so101.learning.rl.actions import make_action_map
from so101.learning.rl.checkpoint import load_checkpoint, save_policy
from so101.learning.rl.networks import Actor, Standardise
from so101.policies.base import PolicyError
from tests.learning.rl.conftest import JOINTS
from tests.learning.rl.toy import WORDS, ToyEnv


def a_policy(seed: int = 0) -> RlPolicy:
    torch.manual_seed(seed)
    shape = RlActorConfig(hidden=[8], layer_norm=True, log_std=(-5, 2), initial_std=1)
    return RlPolicy(
        task="toy", family="toys", language="Go there", control_hz=10.0, observation_names=tuple(WORDS),
        action_names=JOINTS, actions=make_action_map("relative", ToyEnv(1), scale=0.3), shape=shape,
        standardise=Standardise(torch.randn(15), torch.rand(15) + 0.1, 10.0),
        actor=Actor(15, 6, shape.hidden, shape.log_std, shape.layer_norm), training={"steps": 7},
    )  # fmt: skip


@pytest.fixture
def obs():
    return np.random.default_rng(0).normal(size=(4, 15)).astype(np.float32)


@pytest.fixture
def folder(tmp_path):
    save_policy(tmp_path / "toy", a_policy(), {"biases.0": torch.ones(2)})
    return tmp_path / "toy"


def rewrite(folder, change) -> None:
    """Change the JSON of the policy and make the manifest agree."""
    import hashlib

    (path,) = folder.glob("policy-*.json")
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_what_is_loaded_acts_as_what_was_saved(folder, obs):
    read, critics = load_checkpoint(folder)
    np.testing.assert_array_equal(read.act(obs), a_policy().act(obs))
    assert read.act(obs).shape == (4, 6) and np.abs(read.act(obs)).max() <= 1
    assert (read.task, read.control_hz, read.training) == ("toy", 10.0, {"steps": 7})
    assert read.observation_names == tuple(WORDS)
    assert critics["biases.0"].tolist() == [1, 1]


def test_a_new_policy_replaces_the_old_one(folder, obs):
    save_policy(folder, a_policy(1))
    np.testing.assert_array_equal(load_policy(folder).act(obs), a_policy(1).act(obs))
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".json", ".safetensors"]


def test_a_kill_before_the_manifest_leaves_the_old_policy(folder, obs, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("so101.learning.rl.checkpoint.write_text", killed)
    with pytest.raises(KeyboardInterrupt):
        save_policy(folder, a_policy(1))
    np.testing.assert_array_equal(load_policy(folder).act(obs), a_policy().act(obs))


def test_loading_takes_no_stable_baselines3(folder):
    code = f"import sys; from so101.learning.rl import load_policy; load_policy({str(folder)!r})\n"
    code += "sys.exit(any(name.startswith('stable_baselines3') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_another_number_of_words_is_refused(folder):
    with pytest.raises(PolicyError, match=r"looks at \(N, 15\) observations, got \(2, 3\)"):
        load_policy(folder).act(np.zeros((2, 3)))


def test_a_changed_file_is_refused(folder):
    (path,) = folder.glob("weights-*")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(PolicyError, match="not the file the manifest means"):
        load_policy(folder)


def test_a_policy_of_another_kind_is_refused(folder):
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace("so101-rl", "so101-chunk"))
    with pytest.raises(PolicyError, match="kind 'so101-chunk', not one of `./twin rl`"):
        load_policy(folder)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda v: v["mean"].pop(), "mean has 14 values, needed are 15"),
        (lambda v: v["actions"]["half"].append(1.0), "actions.half has 7 values, needed are 6"),
        (lambda v: v["actor"].update(hidden=[9]), "is not what policy-.*json describes"),
        (lambda v: v.update(deviation=[0.0] * 15), "a deviation is not above 0"),
        (lambda v: v.update(format=2), "format"),
    ],
)
def test_files_that_do_not_fit_together_are_refused(folder, change, text):
    rewrite(folder, change)
    with pytest.raises(PolicyError, match=text):
        load_policy(folder)


def test_weights_that_are_no_numbers_are_refused(folder):
    (path,) = folder.glob("weights-*")
    tensors = load_file(path)
    tensors["actor.head.bias"][0] = float("nan")
    save_file(tensors, path)
    import hashlib

    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(PolicyError, match="actor.head.bias holds numbers that are not finite"):
        load_policy(folder)
