"""What `./twin eval` says of its options."""

import pytest

from services.cli.app import main


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["--policy", "embeded"],
            "--policy embeded: no such policy; policies: replay, expert, embedded, groot; did you",
        ),
        (["--server", "here"], "--server here: write it as HOST:PORT, for example 127.0.0.1:5555"),
        (["--server", "here:0"], "--server here:0: write it as HOST:PORT"),
        (["--server", "here:²"], "--server here:²: write it as HOST:PORT"),
        (["--role", "nobody"], "nobody: no such model folder"),
        (["--role", "7"], "7: no such model folder"),
        (["--policy", "expert", "--reference", "nowhere"], "nowhere"),
    ],
)
def test_a_wrong_option_is_told(arguments, told, capsys, tmp_path):
    code = main(["eval", *arguments, "--out", str(tmp_path / "out")])
    assert code != 0 and told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_help_names_the_command_with_an_example(capsys):
    assert main(["eval", "--help"]) == 0
    assert "./twin eval --policy embedded" in capsys.readouterr().out
