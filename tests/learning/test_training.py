"""Dataset, frames, batches, training, checkpoint, policy on a tiny dataset."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import shutil
import time
from types import SimpleNamespace

import av
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from so101.config import load_config
from so101.errors import DataError, RunFolderError, So101Error
from so101.learning.batches import Samples, batches
from so101.learning.checkpoint import load_policy
from so101.learning.dataset import read_dataset
from so101.learning.frames import open_frames, resize_picture
from so101.learning.normalisation import fit_normalisation
from so101.learning.session import train_embedded
from so101.learning.train import Trainer, read_state
from so101.pipeline.progress import SilentReporter
from so101.pipeline.session import lock_folder
from so101.policies import make_policy
from so101.policies.base import PolicyError, PolicyOptions
from so101.policies.checkpoint import find_checkpoint
from so101.tracking import NullRun

from .conftest import LENGTHS, SMALL

HORIZON = 16


@pytest.fixture(scope="module")
def data(small_config, small_run):
    return read_dataset(small_run.dataset, small_config)


@pytest.fixture(scope="module")
def frames(small_config, data, tmp_path_factory):
    pictures = small_config.training.embedded.pictures
    root = tmp_path_factory.mktemp("frames")
    return open_frames(root, data, pictures, workers=1, reporter=SilentReporter())


def samples(config, data, frames, episodes=(0, 1, 2, 3), weights=None):
    normal = fit_normalisation(data.states, data.actions, data.points, np.zeros(6, bool), HORIZON)
    return Samples(data, frames, normal, config.training.embedded, HORIZON, episodes, weights)


def trained(config, data, frames, folder, steps=None):
    if steps is not None:
        settings = config.training.embedded.model_copy(update={"max_steps": steps})
        config = config.model_copy(update={"training": config.training.model_copy(update={"embedded": settings})})
    torch.set_num_threads(1)
    trainer = Trainer(config, data, frames, folder)
    trainer.run(SilentReporter(), NullRun(), time.monotonic)
    return trainer


# dataset and frames


def test_the_dataset_is_read_whole(data):
    assert data.cameras == ("wrist", "front")
    assert data.lengths.tolist() == list(LENGTHS)
    assert [p.shape for p in data.points] == [(length, 6, 3) for length in LENGTHS]  # 2 of the vial, 4 of the rack
    assert data.point_objects == ("rack",) * 4 + ("vial",) * 2
    assert all(path.is_file() for videos in data.videos for path in videos)


def test_points_lie_on_the_axes_of_the_objects(data, small_config):
    rack = data.points[0][0, :4]
    np.testing.assert_allclose(rack[1:] - rack[0], np.eye(3) * small_config.training.embedded.objects_arm_m, atol=1e-6)


def test_the_fingerprint_changes_with_the_numbers(small_config, small_run, data, tmp_path):
    copy = tmp_path / "dataset"
    shutil.copytree(small_run.dataset, copy)
    assert read_dataset(copy, small_config).fingerprint == data.fingerprint
    tasks = copy / "meta/tasks.jsonl"
    tasks.write_text(tasks.read_text() + "\n")
    assert read_dataset(copy, small_config).fingerprint != data.fingerprint


def test_frames_are_those_of_the_videos(small_config, data, frames):
    pictures = small_config.training.embedded.pictures
    with av.open(str(data.videos[1][0])) as container:
        decoded = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    cached = frames.frames["wrist"][frames.rows[1]]
    assert len(cached) == -(-LENGTHS[1] // 2) and cached.shape[1:] == (52, 68, 3)
    for k in (0, 5, 15):
        np.testing.assert_array_equal(cached[k], resize_picture(decoded[2 * k], pictures))


def test_frames_that_are_there_are_not_decoded_again(small_config, data, tmp_path):
    pictures = small_config.training.embedded.pictures

    class Counting(SilentReporter):
        count = 0

        def advance(self, count=1, note=""):
            Counting.count += count

    open_frames(tmp_path, data, pictures, workers=1, reporter=Counting())
    done = next(tmp_path.iterdir()) / "done"
    (done / "2.json").unlink()  # as if it had been killed there
    open_frames(tmp_path, data, pictures, workers=1, reporter=Counting())
    assert Counting.count == len(LENGTHS) + 1


def test_a_cache_that_was_cut_off_is_decoded_again(small_config, data, tmp_path):
    pictures = small_config.training.embedded.pictures
    before = open_frames(tmp_path, data, pictures, workers=1, reporter=SilentReporter())
    kept = before.frames["front"].copy()
    file = next(tmp_path.glob("*/front.u8"))
    os.truncate(file, file.stat().st_size // 2)
    again = open_frames(tmp_path, data, pictures, workers=1, reporter=SilentReporter())
    np.testing.assert_array_equal(again.frames["front"], kept)


def test_a_disk_without_room_for_the_pictures_is_told(small_config, data, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(DataError, match="the pictures need .* MB are free; make room"):
        open_frames(tmp_path, data, small_config.training.embedded.pictures, workers=1, reporter=SilentReporter())


def test_a_video_that_is_short_is_named(small_config, small_run, tmp_path):
    copy = tmp_path / "dataset"
    shutil.copytree(small_run.dataset, copy)
    data = read_dataset(copy, small_config)
    shutil.copyfile(data.videos[2][1], data.videos[1][1])
    with pytest.raises(DataError, match="has 20 frames, its episode 31"):
        open_frames(tmp_path, data, small_config.training.embedded.pictures, workers=1, reporter=SilentReporter())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda info: info | {"codebase_version": "v3.0"}, "is LeRobot v3.0, training reads v2.1"),
        (lambda info: {}, "cannot be read as a LeRobot dataset"),
    ],
)
def test_what_cannot_be_learned_from_is_said(small_config, small_run, tmp_path, change, text):
    copy = tmp_path / "dataset"
    shutil.copytree(small_run.dataset, copy)
    info = copy / "meta/info.json"
    info.write_text(json.dumps(change(json.loads(info.read_text()))))
    with pytest.raises(DataError, match=text):
        read_dataset(copy, small_config)


def test_other_units_are_refused(small_run):
    config = load_config(overrides=[*SMALL, "dataset.units.body=normalized"])
    with pytest.raises(DataError, match="other units than dataset.units"):
        read_dataset(small_run.dataset, config)


# batches


def test_a_batch_depends_on_its_number_alone(small_config, data, frames):
    some = samples(small_config, data, frames)
    for a, b in zip(batches(some, 3, 6), (some.draw(n) for n in (3, 4, 5)), strict=True):
        for name, value in a.__dict__.items():
            np.testing.assert_array_equal(value, getattr(b, name))
    assert (some.draw(3).joints != some.draw(4).joints).any()


def test_without_augmentation_a_sample_is_what_the_dataset_holds(small_config, data, frames):
    some = samples(small_config, data, frames)
    batch = some.make(np.array([4]))  # frame 8 of episode 0
    np.testing.assert_array_equal(batch.pictures[1, 0], frames.frames["front"][4][2:-2, 2:-2])
    normal = some._normalisation
    np.testing.assert_allclose(batch.chunk[0], normal.encode_chunk(data.actions[0][None, 8:24], data.states[0][8:9])[0])
    np.testing.assert_allclose(batch.joints[0], normal.encode_state(data.states[0][8:9])[0])


def test_weights_decide_how_often_an_episode_is_seen(small_config, data, frames):
    some = samples(small_config, data, frames, weights={0: 8.0, 1: 1.0, 2: 1.0, 3: 0.0})
    counts = np.zeros(4)
    for number in range(300):
        rng = np.random.default_rng([0, number])
        chosen = np.searchsorted(some._share, rng.random(4), side="right")
        counts += np.bincount(some._episode[chosen], minlength=4)
    assert counts[3] == 0
    assert counts[0] / counts.sum() == pytest.approx(0.8, abs=0.05)


def test_a_fault_on_the_thread_is_raised_where_batches_are_wanted(small_config, data, frames):
    some = samples(small_config, data, frames)
    some._cached = some._cached + 10**6
    with pytest.raises(IndexError):
        next(iter(batches(some, 0, 3)))


# training


def test_a_training_that_was_cut_off_ends_as_one_that_was_not(small_config, data, frames, tmp_path):
    whole = trained(small_config, data, frames, tmp_path / "whole")
    half = Trainer(small_config, data, frames, tmp_path / "cut")
    for number in range(5):
        half._learn(half.samples.draw(number))
        half.step += 1
        if half.step == 3:
            half._save_state("run-7")
    # ... killed here: what was learned since step 3 is lost
    rest = trained(small_config, data, frames, tmp_path / "cut")
    assert rest.run_id == "run-7"
    for key, value in whole.average.state_dict().items():
        torch.testing.assert_close(rest.average.state_dict()[key], value, rtol=0, atol=0)
    logs = [(tmp_path / name / "training/log.csv").read_text() for name in ("whole", "cut")]
    assert logs[0].splitlines()[-1] == logs[1].splitlines()[-1]


def test_a_finished_training_is_not_done_again(small_config, data, frames, tmp_path):
    trained(small_config, data, frames, tmp_path / "role")
    before = (tmp_path / "role/weights.safetensors").read_bytes()
    assert Trainer(small_config, data, frames, tmp_path / "role").step == 8
    trained(small_config, data, frames, tmp_path / "other")
    assert (tmp_path / "other/weights.safetensors").read_bytes() == before


def test_another_training_in_the_folder_is_refused_and_says_what_differs(small_config, data, frames, tmp_path):
    trained(small_config, data, frames, tmp_path)
    other = load_config(overrides=[*SMALL, "training.embedded.optimizer.learning_rate=0.01"])
    with pytest.raises(DataError, match=r"settings.optimizer.learning_rate: 0.001 -> 0.01.*--fresh"):
        Trainer(other, data, frames, tmp_path)


def test_a_damaged_state_is_named(small_config, data, frames, tmp_path):
    trained(small_config, data, frames, tmp_path)
    state = tmp_path / "training/state.safetensors"
    state.write_bytes(state.read_bytes()[:100])
    with pytest.raises(DataError, match="not the state of a training"):
        read_state(tmp_path)


def changed_state(folder, change):
    path = folder / "training/state.safetensors"
    with safe_open(path, "pt") as file:
        tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    change(tensors)
    save_file(tensors, path, metadata)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda tensors: tensors.pop("network.trunk.0.weight"), "trunk.0.weight"),
        (lambda tensors: tensors["average.trunk.0.bias"].fill_(torch.nan), "not finite"),
    ],
)
def test_a_state_with_wrong_tensors_is_named(small_config, data, frames, tmp_path, change, text):
    trained(small_config, data, frames, tmp_path)
    changed_state(tmp_path, change)
    with pytest.raises(DataError, match=f"(?s)not the state of this training.*{text}.*--fresh"):
        trained(small_config, data, frames, tmp_path)


def test_a_training_may_begin_with_another_policy(small_config, data, frames, tmp_path):
    first = trained(small_config, data.first(2), frames, tmp_path / "first")
    begun = load_policy(find_checkpoint(tmp_path, "first"), small_config)
    trainer = Trainer(small_config, data, frames, tmp_path / "second", begin_with=begun)
    for key, value in first.average.state_dict().items():
        torch.testing.assert_close(trainer.network.state_dict()[key], value, rtol=0, atol=0)
    normal, before = trainer.normalisation, first.normalisation
    np.testing.assert_array_equal(normal.chunk, before.chunk)  # the weights mean what they meant
    learned = [actions for e, actions in enumerate(data.actions) if e != 2]
    np.testing.assert_allclose(normal.high, np.max([a.max(0) for a in learned], axis=0))  # and may go farther
    assert (normal.high > before.high).any()


def test_a_training_on_a_real_arm_begins_with_one_that_knew_its_objects(small_config, data, frames, tmp_path):
    """Nobody knows where the objects of a real arm are."""
    first = trained(small_config, data, frames, tmp_path / "first")
    begun = load_policy(find_checkpoint(tmp_path, "first"), small_config)
    unknown = dataclasses.replace(data, points=[p[:, :0] for p in data.points], point_objects=())
    trainer = Trainer(small_config, unknown, frames, tmp_path / "second", begin_with=begun)
    for key, value in first.average.state_dict().items():
        if not key.startswith("points."):
            torch.testing.assert_close(trainer.network.state_dict()[key], value, rtol=0, atol=0)
    assert trainer.normalisation.points.shape == (2, 0, 3)
    trainer.run(SilentReporter(), NullRun(), time.monotonic)
    assert find_checkpoint(tmp_path, "second")


def test_a_policy_of_another_shape_cannot_be_begun_with(small_config, data, frames, tmp_path):
    trained(small_config, data, frames, tmp_path / "first")
    begun = load_policy(find_checkpoint(tmp_path, "first"), small_config)
    wider = SMALL + ["training.embedded.model={head: flow, channels: [8, 8, 8], width: 48, blocks: 1, dropout: 0.0, "
                     "flow_samples: 2}"]  # fmt: skip
    with pytest.raises(DataError, match="of another shape .width: 32, here 48"):
        Trainer(load_config(overrides=wider), data, frames, tmp_path / "second", begin_with=begun)


def test_policies_on_the_way_are_kept(small_config, data, frames, tmp_path):
    config = load_config(overrides=[*SMALL, "training.embedded.keep_every_steps=4"])
    trained(config, data, frames, tmp_path / "role")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["role", "role-step000004"]
    assert (tmp_path / "role-step000004/manifest.json").is_file()


def test_a_loss_that_is_no_number_ends_the_training(small_config, data, frames, tmp_path):
    trainer = Trainer(small_config, data, frames, tmp_path)
    with torch.no_grad():
        trainer.network.trunk[0].weight.fill_(torch.nan)
    with pytest.raises(DataError, match="the loss is nan at step 2"):
        trainer.run(SilentReporter(), NullRun(), time.monotonic)


# the command's own part, and the policy


@pytest.fixture(scope="module")
def models(small_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    config = load_config(overrides=[*SMALL, f"deploy.server.models_dir={folder}"])
    train_embedded(
        config, small_run.dataset, "policy", episodes=3, fresh=False, workers=1, reporter=SilentReporter(),
        clock=time.monotonic,
    )  # fmt: skip
    return folder


def served(models, *overrides):
    config = load_config(overrides=[*SMALL, f"deploy.server.models_dir={models}", *overrides])
    return make_policy(config, "embedded", PolicyOptions())


def observation(batch=1, text="Pick up the vial and place it in the rack", seed=0):
    rng = np.random.default_rng(seed)
    video = {name: rng.integers(0, 256, (batch, 1, 120, 160, 3), dtype=np.uint8) for name in ("wrist", "front")}
    state = {
        "single_arm": rng.normal(size=(batch, 1, 5)).astype(np.float32),
        "gripper": rng.uniform(0, 100, (batch, 1, 1)).astype(np.float32),
    }
    return {
        "video": video,
        "state": state,
        "language": {"annotation.human.task_description": [[text]] * batch},
    }


def test_a_trained_policy_answers_with_chunks(models, data):
    policy = served(models)
    action, _ = policy.get_action(observation(2))
    assert {name: value.shape for name, value in action.items()} == {"single_arm": (2, 16, 5), "gripper": (2, 16, 1)}
    assert all(value.dtype == np.float32 for value in action.values())
    low = np.min([a.min(0) for a in data.actions[:2]], axis=0)  # the third of three episodes is held out
    assert (action["single_arm"] >= low[:5] - 1e-4).all()


def test_equal_seeds_give_equal_chunks(models):
    policy = served(models)
    first, _ = policy.get_action(observation())
    second, _ = policy.get_action(observation())
    policy.reset()
    again, _ = policy.get_action(observation())
    np.testing.assert_array_equal(first["single_arm"], again["single_arm"])
    assert (first["single_arm"] != second["single_arm"]).any()


def test_the_task_is_known_whatever_its_case_and_punctuation(models):
    policy = served(models)
    policy.get_action(observation(text="pick up the vial, and place it in the rack."))
    with pytest.raises(PolicyError, match="does not know the task 'Fold the towel'; it was trained on: 'Pick up"):
        policy.get_action(observation(text="Fold the towel"))


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("dataset.units.body=normalized", "other units than dataset.units"),
        (
            "dataset.cameras={ego: wrist, side: sideways}",
            "it looks at camera 'front', dataset.cameras gives wrist, side",
        ),
        ("deploy.control.action_horizon=12", "its chunks have 16 rows, deploy.control.action_horizon is 12"),
        ("deploy.control.control_hz=25", "its chunks are for 30 Hz, deploy.control.control_hz is 25"),
    ],
)
def test_a_policy_of_something_else_says_why(models, override, text):
    with pytest.raises(PolicyError, match=text):
        served(models, override)


def test_weights_that_were_changed_are_not_loaded(models, tmp_path):
    copy = tmp_path / "models"
    shutil.copytree(models, copy)
    weights = copy / "policy/weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(PolicyError, match="weights.safetensors is not the file the manifest means"):
        served(copy)


def rewrite(models, copy, change):
    """A copy of the models whose policy.json is changed, and the manifest with it."""
    shutil.copytree(models, copy)
    path, manifest = copy / "policy/policy.json", copy / "policy/manifest.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
    told = json.loads(manifest.read_text())
    told["files"]["policy.json"] = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(told))
    return copy


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda v: v["architecture"].update(channels=[10**9, 8, 8]), "architecture.channels.0 is 1000000000"),
        (lambda v: v["architecture"].update(width=4096), "weights.safetensors: is not what policy.json describes"),
        (lambda v: v["architecture"].update(blocks=10**9), "architecture.blocks is 1000000000"),
        (lambda v: v["architecture"].update(joints=-6), "architecture.joints is -6"),
        (lambda v: v["architecture"].update(horizon=17), "normalisation.chunk has shape"),
        (lambda v: v["pictures"].update(width_px=10**6), "pictures.width_px is 1000000"),
        (lambda v: v.update(cameras=[*v["cameras"], "top"]), "architecture.cameras is 2, but cameras names 3"),
        (lambda v: v["normalisation"].update(low=[float("nan")] * 6), "normalisation.low.0 is nan"),
        (lambda v: v["units"].pop("offset"), "units.offset' is missing"),
        (lambda v: v.update(control_hz="fast"), "control_hz is 'fast'"),
        (lambda v: v.update(format=2), "format 2; this program reads 1"),
    ],
)
def test_a_policy_file_changed_by_hand_says_what_is_wrong(models, tmp_path, change, text):
    with pytest.raises(PolicyError, match=text):
        served(rewrite(models, tmp_path / "models", change))


def test_weights_that_are_no_numbers_are_named(models, tmp_path):
    copy = rewrite(models, tmp_path / "models", lambda values: None)
    path, manifest = copy / "policy/weights.safetensors", copy / "policy/manifest.json"
    weights = load_file(path)
    weights["trunk.0.bias"][0] = torch.nan
    save_file(weights, path)
    told = json.loads(manifest.read_text())
    told["files"]["weights.safetensors"] = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(told))
    with pytest.raises(PolicyError, match="trunk.0.bias holds numbers that are not finite"):
        served(copy)


def test_the_same_command_again_finds_it_trained(small_run, models):
    config = load_config(overrides=[*SMALL, f"deploy.server.models_dir={models}"])
    said = train_embedded(
        config, small_run.dataset, "policy", episodes=3, fresh=False, workers=1, reporter=SilentReporter(),
        clock=time.monotonic,
    )  # fmt: skip
    assert "is trained: 8 steps" in said


def train_in(models, small_run, *, dataset=None, **options):
    config = load_config(overrides=[*SMALL, f"deploy.server.models_dir={models}"])
    options = {"role": "policy", "episodes": 3, "fresh": False, **options}
    return train_embedded(
        config, dataset or small_run.dataset, workers=1, reporter=SilentReporter(), clock=time.monotonic, **options
    )


def test_a_policy_that_was_not_written_after_the_last_step_is_written(small_run, models, tmp_path):
    """Killed between the last state and the policy, or with the policy of an earlier training still there."""
    copy = tmp_path / "models"
    shutil.copytree(models, copy)
    told = (copy / "policy/policy.json").read_bytes()
    (copy / "policy/manifest.json").unlink()
    assert "its policy was not whole and is written again" in train_in(copy, small_run)
    assert (copy / "policy/policy.json").read_bytes() == told and served(copy)
    assert train_in(copy, small_run).endswith("(begin anew with --fresh)")


@pytest.mark.parametrize("options", [{"dataset": "absent"}, {"episodes": 99}, {"begin_with": "absent"}])
def test_fresh_forgets_nothing_before_the_rest_is_known_to_be_right(small_run, models, tmp_path, options):
    with pytest.raises(So101Error):
        train_in(models, small_run, **{"fresh": True, **options})
    assert (models / "policy/training/state.safetensors").is_file()
    with pytest.raises(So101Error):
        train_in(models, small_run, **{"role": "typo", **options})
    assert not (models / "typo").exists()


def test_a_role_cannot_begin_with_itself(small_run, models):
    with pytest.raises(DataError, match="--from policy: is the role that is trained"):
        train_in(models, small_run, begin_with="policy")


def test_a_role_in_use_names_the_process(small_run, models):
    folder = SimpleNamespace(root=models / "policy", lock=models / "policy/.lock")
    with lock_folder(folder):
        for _ in range(2):
            with pytest.raises(RunFolderError, match=f"(?s)process {os.getpid()}.*--role"):
                train_in(models, small_run)


def test_more_episodes_than_there_are_cannot_be_learned_from(small_config, data):
    with pytest.raises(DataError, match="has 4 episodes; 5 cannot be learned from"):
        data.first(5)


def test_pictures_of_any_size_become_those_of_the_network(small_config):
    pictures = small_config.training.embedded.pictures
    big = np.asarray(Image.new("RGB", (640, 480), (10, 200, 30)))
    small = resize_picture(big, pictures)
    assert small.shape == (52, 68, 3) and (small == [10, 200, 30]).all()
    assert resize_picture(small, pictures) is small
