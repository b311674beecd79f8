import hashlib
import json

import pytest

from so101.config import load_config
from so101.policies import Modality, make_policy
from so101.policies.base import PolicyError
from so101.policies.checkpoint import LEARNED, find_checkpoint

WEIGHTS = b"weights"
MANIFEST = {
    "format": 1,
    "kind": "chunk",
    "task": "vial_to_rack",
    "modality": {
        "video": ["front"],
        "state": {"single_arm": 5},
        "action": {"single_arm": 5},
        "language": "annotation.human.task_description",
        "horizon": 16,
    },
    "files": {"weights.safetensors": hashlib.sha256(WEIGHTS).hexdigest()},
}


@pytest.fixture
def models(tmp_path):
    folder = tmp_path / "policy"
    folder.mkdir()
    (folder / "weights.safetensors").write_bytes(WEIGHTS)
    (folder / "manifest.json").write_text(json.dumps(MANIFEST))
    return tmp_path


def rewrite(models, **change):
    (models / "policy" / "manifest.json").write_text(json.dumps(MANIFEST | change))


def test_a_whole_checkpoint_is_found_by_its_role(models):
    checkpoint = find_checkpoint(models, "policy")
    assert checkpoint.folder == models / "policy" and checkpoint.manifest.kind == "chunk"
    assert checkpoint.modality == Modality(
        ("front",), {"single_arm": 5}, {"single_arm": 5}, "annotation.human.task_description", 16
    )


def test_a_missing_role_names_those_there_are(models, tmp_path):
    with pytest.raises(PolicyError, match=r"no such model folder; it has: policy; did you mean 'policy'\?"):
        find_checkpoint(models, "polcy")
    for role in ("../models", "", ".", "policy/..", str(models / "policy")):
        with pytest.raises(PolicyError, match="no such model folder"):
            find_checkpoint(models, role)
    (models / ".frames").mkdir()
    with pytest.raises(PolicyError, match="it has: policy; did"):
        find_checkpoint(models, "polcy")
    with pytest.raises(PolicyError, match="there is no model in it. Put the checkpoint there, mount the folder"):
        find_checkpoint(tmp_path / "nowhere", "policy")


def test_a_folder_without_manifest_tells_what_is_in_it(models):
    (models / "policy" / "manifest.json").unlink()
    with pytest.raises(PolicyError, match=r"no manifest.json \(found: weights.safetensors\)"):
        find_checkpoint(models, "policy")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"format": 2}, "format is 2"),
        ({"kinds": "x"}, "unknown key 'kinds' .*did you mean 'kind'"),
        ({"files": {}}, "files"),
        ({"modality": {**MANIFEST["modality"], "horizon": 0}}, "modality.horizon is 0"),
        ({"files": {"weights.safetensors": "00"}}, "weights.safetensors is not the file the manifest means"),
        ({"files": {"a": "00", "../b": "00"}}, "a is missing; ../b points out of the folder. Copy it again"),
        ({"files": {"/etc/hostname": "00"}}, "/etc/hostname points out of the folder"),
    ],
)
def test_a_wrong_manifest_is_told(models, change, text):
    rewrite(models, **change)
    with pytest.raises(PolicyError, match=text):
        find_checkpoint(models, "policy")


def test_a_manifest_that_is_no_json_is_told(models):
    (models / "policy" / "manifest.json").write_text("{")
    with pytest.raises(PolicyError, match=r"manifest.json: cannot be read as JSON"):
        find_checkpoint(models, "policy")


def test_a_kind_that_cannot_be_run_is_told_and_one_that_can_is_made(models, monkeypatch):
    config = load_config(overrides=[f"deploy.server.models_dir={models}"])
    with pytest.raises(
        PolicyError, match="the checkpoint is whole, but this program cannot run a policy of kind 'chunk'"
    ):
        make_policy(config, "embedded")
    monkeypatch.setitem(LEARNED, "chunk", f"{__name__}:learned")
    assert make_policy(config, "embedded") == ("learned", models / "policy")


def learned(config, checkpoint):
    return "learned", checkpoint.folder
