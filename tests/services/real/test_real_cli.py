import pytest

from services.cli.app import main


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def said(arguments: list[str], capsys) -> tuple[int, str]:
    code = main(["real", *arguments])
    found = capsys.readouterr()
    return code, found.out + found.err


def test_misspelt_policies_are_told_the_closest(capsys):
    code, text = said(["--policy", "replya"], capsys)
    assert code == 2
    assert "--policy replya: no such policy; policies: replay, expert, embedded, groot, remote; did you mean" in text


def test_a_pseudo_real_arm_is_a_simulated_one(capsys):
    code, text = said(["--policy", "expert", "--pseudo-real", "3"], capsys)
    assert code == 2 and "--pseudo-real is about a simulated arm: add --sim" in text


def test_a_demo_that_is_not_there_is_named_and_none_is_made_instead(capsys, tmp_path):
    code, text = said(["--policy", "replay", "--demo", "runs/nothing"], capsys)
    assert code == 3 and "runs/nothing: no verified demo to replay" in text
    code, text = said(["--policy", "replay", "--demo", "nothing.npz"], capsys)
    assert code == 3 and "nothing.npz: no such file; --demo takes a demo (.npz) or the folder of a run" in text
    assert not list(tmp_path.rglob("*.npz"))


def test_without_a_policy_server_remote_starts_nothing(capsys, tmp_path):
    ports = ["--set", "deploy.client.port=1", "--set", "deploy.client.connect_timeout_ms=200"]
    code, text = said(["--policy", "remote", "--name", "x", *ports], capsys)
    assert (
        code == 1 and "no policy server answers at tcp://127.0.0.1:1 (deploy.client); start one with ./policy" in text
    )
    assert not (tmp_path / "runs/real/x/services").exists()


@pytest.mark.parametrize("name", ["../vials", "a/b", ".hidden", "", "x" * 101])
def test_a_session_is_a_plain_name_in_the_folder_of_sessions(name, capsys):
    code, text = said(["--policy", "remote", "--name", name], capsys)
    assert code == 2 and "must be a plain name" in text


def test_recording_moves_the_arm_so_it_wants_to_be_told(capsys):
    code, text = said(["record"], capsys)
    assert code == 2 and "record moves the follower arm: say --arm" in text


def test_a_session_without_episodes_is_no_dataset(capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    code, text = said(["dataset", "empty"], capsys)
    assert code == 6 and "no episode ended with success (episodes: none)" in text
    (tmp_path / "monday/episodes").mkdir(parents=True)
    code, text = said(["dataset", "mondy"], capsys)
    assert code == 3 and "mondy: there is no such session; the newest in .: monday" in text
    code, text = said(["dataset", "empty", "--outcome", "sucess"], capsys)
    assert code == 2 and "did you mean 'success'?" in text


@pytest.mark.parametrize("command", ["", "status", "calibrate", "teleop", "record", "dataset"])
def test_every_command_has_help_with_an_example(command, capsys):
    code, text = said([*[command] * bool(command), "--help"], capsys)
    assert code == 0 and "Example: ./real" in text
