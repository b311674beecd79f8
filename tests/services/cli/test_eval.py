"""What `./twin eval` says of its options."""

import pytest

from services.cli.app import main
from services.cli.eval import placements
from so101.config import load_config


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


@pytest.mark.parametrize(
    ("policy", "first", "noted"),
    [("embedded", 9_999, True), ("embedded", 20_000, True), ("embedded", 0, False), ("embedded", None, False),
     ("expert", 20_000, False)],
)  # fmt: skip
def test_placements_that_demos_may_have_are_told(policy, first, noted, capsys):
    seeds = placements(load_config(), policy, first, 2)
    assert seeds == range(1_000_000 if first is None else first, (1_000_000 if first is None else first) + 2)
    assert ("note: demos are attempts with seeds from 10000 on" in capsys.readouterr().out) is noted


def test_help_names_the_command_with_an_example(capsys):
    assert main(["eval", "--help"]) == 0
    assert "./twin eval --policy embedded" in capsys.readouterr().out
