"""What a stranger gets wrong at the tools around families ends in one sentence, before any work."""

import shutil

import pytest

from services.cli.app import main
from so101.config import CONFIGS_DIR, load_config
from so101.errors import ConfigError, DataError
from so101.families import find_task
from so101.families.preview import joints_of, state_of
from so101.families.video import write_show
from so101.files import check_writable


@pytest.mark.parametrize("place", [(30.0, -7.0), (float("nan"), 0.0)])
def test_a_place_in_other_units_is_refused(place):
    family = find_task("so101_tower_cube_in_bowl").family
    q, _ = joints_of(family, [0.0] * 6)
    with pytest.raises(ConfigError, match="brick at .*: metres from the arm's base, within 2 each way"):
        state_of(family, q, {"brick": place})


def test_a_video_of_another_kind_is_refused_before_it_is_drawn(tmp_path):
    with pytest.raises(DataError, match=r"x\.txt: a video is written as \.mp4"):
        write_show(tmp_path / "x.txt", None, 1, load_config(), None)


def test_what_cannot_be_written_is_said_beforehand(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    for path in (file / "below.json", tmp_path):
        with pytest.raises(DataError, match=r"cannot be written \(.*\); name another file"):
            check_writable(path)
    check_writable(file)
    check_writable(tmp_path / "new" / "x.json")
    assert file.read_text() == "mine"
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize(
    "option", [("--seed", "99999999999999999999"), ("--z-grasp", "20"), ("--z-grasp", "nan"), ("--jaw-open", "99")]
)
def test_numbers_out_of_range_are_usage_errors(option, capsys):
    assert main(["expert", "so101_tower_lift_brick", *option]) == 2
    assert option[0] in capsys.readouterr().err


@pytest.mark.parametrize("demos", ["", ","])
def test_no_demos_where_some_were_meant_is_an_error(demos, capsys):
    assert main(["rl", "so101_tower_lift_brick", "--demos", demos]) == 2
    assert "names no file" in capsys.readouterr().err


def test_models_that_cannot_be_there_end_in_a_sentence(tmp_path, capsys):
    (tmp_path / "models").write_text("a file")
    code = main(["rl", "so101_reach", "--role", "x", "--set", f"deploy.server.models_dir={tmp_path / 'models'}"])
    assert code == 5 and "--role" in capsys.readouterr().err


def test_an_unknown_section_is_named_without_all_it_holds(tmp_path):
    text = (CONFIGS_DIR / "families" / "so101_tower.yaml").read_text()
    shutil.copytree(CONFIGS_DIR, tmp_path / "configs")
    file = tmp_path / "configs" / "families" / "so101_tower.yaml"
    file.write_text(text.replace("\nregions:", "\nregoins:"))
    with pytest.raises(ConfigError, match=r"unknown key 'regoins' \(value .{80}\); .*did you mean 'regions'"):
        find_task("so101_tower_lift_brick", tmp_path / "configs")
