"""What README and docs tell people to type exists, and so do the pages and files they point to."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from services.cli.app import app
from so101.config import load_config

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
PLACEHOLDER = re.compile(r"[A-Z]{3,}|\.\.\.|\[|<")


def commands_in(page: Path) -> list[str]:
    """Lines of code blocks that begin with ./twin, without what is said beside them."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    said = (re.split(r"\s{2,}|\s#|;| && | \| ", line.strip())[0] for line in lines if line.startswith("./twin "))
    return [line for line in said if not PLACEHOLDER.search(line.replace("SECTION.KEY", ""))]


COMMANDS = {(page.name, line) for page in PAGES for line in commands_in(page)}


def test_there_are_some_to_look_at():
    assert len(COMMANDS) > 50 and {name for name, _ in COMMANDS} > {"README.md", "training.md", "evaluation.md"}


@pytest.mark.parametrize(("page", "line"), sorted(COMMANDS))
def test_a_command_has_the_options_it_is_shown_with(page, line):
    group = typer.main.get_command(app)
    _, name, *arguments = shlex.split(line)
    context = group.commands[name].make_context(name, arguments)
    sets = context.params.get("set_")
    if sets or context.params.get("preset"):
        load_config(preset=context.params.get("preset"), overrides=sets or [])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_points_to_is_there(page):
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []
    paths = re.findall(r"`((?:so101|services|proto|configs|benchmarks|containers|docs|tests)/[\w./-]+)`", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_page_is_in_the_list_of_the_readme():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES[1:] if f"(docs/{page.name})" not in text] == []
