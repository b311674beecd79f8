"""The commands that show something: help, examples, and what is wrong."""

from __future__ import annotations

import re

import pytest
import typer.main

from services.cli.app import app, main

COMMANDS = ("view", "policy-view", "replay", "record")


@pytest.mark.parametrize("command", COMMANDS)
def test_each_explains_itself_with_an_example_that_parses(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main([command, "--help"]) == 0
    assert f"Example: ./twin {command} " in capsys.readouterr().out
    group = typer.main.get_command(app)
    for example in re.findall(r"\./twin ([a-z-]+ [^;(]*)", group.commands[command].epilog):
        name, *arguments = example.split()
        group.commands[name].make_context(name, arguments)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["view", "so101_tower_lift"], "unknown task 'so101_tower_lift'; there are so101_reach, "),
        (["policy-view", "expert"], "expert drives any task: name one by --task"),
        (["policy-view", "nobody"], "no policy 'nobody'"),
        (["replay", "none.demo"], "none.demo: cannot be read as a .demo file"),
        (["record", "so101_reach", "--policy", "nobody", "--no-arm"], "no policy 'nobody'"),
    ],
)
def test_what_is_not_there_is_told_without_a_traceback(arguments, text, capsys):
    assert main(arguments) in (2, 3)
    assert text in capsys.readouterr().err
