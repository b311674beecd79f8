import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.control.progress import MESSAGES_KEPT, ProgressFile, ProgressReader, RunProgress

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.sampled_from(["seeds", "generate", "render"]), st.integers(0, 50)),
        st.tuples(st.just("advance"), st.integers(0, 3), st.text(max_size=5)),
        st.tuples(st.just("message"), st.text(max_size=20), st.none()),
    ),
    max_size=30,
)


def write(path, steps, interval_s=0.0, clock=None):
    reporter = ProgressFile(path, interval_s, clock or (lambda: 100.0))
    for kind, a, b in steps:
        if kind == "start":
            reporter.start(a, b)
        elif kind == "advance":
            reporter.advance(a, b)
        else:
            reporter.message(a)
    reporter.close()


@settings(max_examples=60, deadline=None)
@given(STEPS, st.lists(st.integers(0, 2000), max_size=5))
def test_read_in_pieces_or_at_once_it_says_the_same(tmp_path_factory, steps, cuts):
    folder = tmp_path_factory.mktemp("progress")
    write(folder / "whole", steps)
    content = (folder / "whole").read_bytes()
    at_once = ProgressReader(folder / "whole")
    at_once.read()
    in_pieces = ProgressReader(folder / "pieces")
    for cut in [*sorted(cuts), len(content)]:
        (folder / "pieces").write_bytes(content[:cut])
        in_pieces.read()
    assert in_pieces.progress == at_once.progress


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_however_seldom_it_is_written_the_sums_are_right(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("progress")
    write(folder / "every", steps, 0.0)
    write(folder / "rare", steps, 1e9)
    every, rare = ProgressReader(folder / "every"), ProgressReader(folder / "rare")
    every.read(), rare.read()
    done = lambda reader: {name: stage.done for name, stage in reader.progress.stages.items()}  # noqa: E731
    assert done(every) == done(rare)
    assert list(every.progress.messages) == list(rare.progress.messages)


def test_rate_and_time_left_of_a_stage(tmp_path):
    now = [1000.0]
    reporter = ProgressFile(tmp_path / "p", 0.0, lambda: now[0])
    reporter.start("generate", 12, done=2)
    for _ in range(4):
        now[0] += 5
        reporter.advance(1, "3 of 4 attempts succeeded")
    reader = ProgressReader(tmp_path / "p")
    assert reader.read()
    stage = reader.progress.stages["generate"]
    assert (stage.done, stage.total, stage.note) == (6, 12, "3 of 4 attempts succeeded")
    assert stage.rate_per_s == pytest.approx(0.2)  # those that were there before do not count
    assert stage.eta_s == pytest.approx(30)
    assert not reader.read()


def test_many_advances_are_few_lines(tmp_path):
    now = [0.0]
    reporter = ProgressFile(tmp_path / "p", 1.0, lambda: now[0])
    reporter.start("generate", 1000)
    for _ in range(1000):
        now[0] += 0.01
        reporter.advance()
    reporter.close()
    assert len((tmp_path / "p").read_text().splitlines()) <= 13


def test_a_line_that_a_kill_cut_off_costs_itself_alone(tmp_path):
    path = tmp_path / "p"
    write(path, [("start", "generate", 10), ("advance", 3, "")])
    path.write_bytes(path.read_bytes() + b'{"at": 5, "event": "adva')
    write(path, [("start", "generate", 10), ("advance", 1, "")])  # the next process
    reader = ProgressReader(path)
    reader.read()
    assert reader.progress.stages["generate"].total == 10


def test_a_file_made_anew_is_read_anew(tmp_path):
    path = tmp_path / "p"
    write(path, [("start", "generate", 10), ("advance", 3, "a" * 50)])
    reader = ProgressReader(path)
    reader.read()
    path.write_text("")
    write(path, [("start", "seeds", 2)])
    reader.read()
    assert list(reader.progress.stages) == ["seeds"]


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"event": "stage", "at": 1},
        {"event": "advance", "at": 1, "count": "x"},
        {"event": "stage", "at": None},
        {"event": "new", "at": 1},
    ],
)
def test_events_of_others_are_passed_over(event):
    progress = RunProgress()
    progress.apply(event)
    assert progress.stages == {} and progress.current is None


def test_only_the_last_messages_are_kept(tmp_path):
    write(tmp_path / "p", [("message", str(i), None) for i in range(100)])
    reader = ProgressReader(tmp_path / "p")
    reader.read()
    assert list(reader.progress.messages) == [str(i) for i in range(100 - MESSAGES_KEPT, 100)]


def test_lines_are_json_whatever_the_text(tmp_path):
    write(tmp_path / "p", [("message", 'a\n"b" \ud800', None)])
    assert json.loads((tmp_path / "p").read_text().splitlines()[0])["event"] == "message"
