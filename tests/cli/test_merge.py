"""`./twin merge` and `./twin sources` from the outside."""

from __future__ import annotations

import json

import pytest

from so101.cli.app import main
from tests.datasets.merging import OVERRIDES, make_source, small_config

SETTINGS = [argument for override in OVERRIDES for argument in ("--set", override)]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    config = small_config()
    return [make_source(tmp_path_factory.mktemp(n), config, (24, 17), first=f) for n, f in (("sim", 2), ("real", 50))]


def test_merge_then_sources(sources, tmp_path, capfd):
    sim, real = sources
    out = tmp_path / "out"
    command = ["merge", f"{sim}:3:sim", f"{real}:1:real", "--kind", "real=real", "--out", str(out), "--workers", "1"]
    assert main([*command, *SETTINGS]) == 0
    text = capfd.readouterr().out
    assert "merge: 4 in the folder; episodes 4; frames 82; sources (sim 2, real 2); videos (link 8)" in text
    assert "75%" in text and "25%" in text and (out / "sources.png").is_file()
    assert main(["sources", str(out), "--json", str(tmp_path / "s.json"), *SETTINGS]) == 0
    assert [row["name"] for row in json.loads((tmp_path / "s.json").read_text())] == ["sim", "real"]
    assert main([*command, *SETTINGS]) == 0
    assert "unchanged yes" in capfd.readouterr().out


def test_faults_end_without_traceback_and_write_nothing(sources, tmp_path, capfd):
    sim, real = sources
    command = ["merge", f"{sim}:3:sim", str(real), "--drop", "frnt", "--out", str(tmp_path / "out"), *SETTINGS]
    assert main(command) == 3
    text = capfd.readouterr().err
    assert "error: cannot merge, 2 faults, nothing was written\n  weights: sim have one" in text
    assert "--drop frnt: no such feature" in text and "Traceback" not in text
    assert main(["merge", str(sim), "--size", "big", "--out", str(tmp_path / "out"), *SETTINGS]) == 2
    assert not any(tmp_path.iterdir())
