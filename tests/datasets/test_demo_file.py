""".demo files: the round trip, damage anywhere, writing that is killed, and the older kind."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from so101.datasets import demo_file
from so101.datasets.demo_file import SUCCESS, DemoWriter, read_demo, write_demo
from so101.errors import DataError
from tests.datasets.demos import assert_same, make_episode, make_header, mrl_bytes

HEADER = make_header()
EPISODES = [make_episode(7, 3), make_episode(8, 1, success=False), make_episode(9, 4)]


def refusal(path, **options) -> str:
    with pytest.raises(DataError) as error:
        read_demo(path, **options)
    return str(error.value)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("demo") / "a.demo"
    write_demo(path, HEADER, EPISODES)
    return path.read_bytes()


@pytest.fixture(scope="module")
def spans(whole) -> list[tuple[int, int]]:
    """First byte and end of the header's chunk and of each episode's, from the numbers the format gives."""
    spans, offset = [], 28
    while offset < len(whole):
        kind, _, text_bytes, rows, row_bytes = struct.unpack_from("<4sIIII", whole, offset)
        assert kind == (b"EPIS" if spans else b"HEAD")
        spans.append((offset, offset + 24 + text_bytes + rows * row_bytes + 16))
        offset = spans[-1][1]
    assert offset == len(whole) and len(spans) == 4
    return spans


def recovered(content: bytes, path: Path) -> tuple[set[int], str]:
    """Seeds of the episodes that come back, each checked to be what was written, and what is said to be lost."""
    path.write_bytes(content)
    try:
        found = read_demo(path, strict=False)
    except DataError as error:
        return set(), str(error)
    assert found.header == HEADER
    for episode in found.episodes:
        assert_same(episode, next(e for e in EPISODES if e.seed == episode.seed))
    return {episode.seed for episode in found.episodes}, found.lost


# --- whole files -----------------------------------------------------------------------------------------------------


def test_round_trip_is_exact_and_equal_episodes_are_equal_bytes(tmp_path, whole):
    path = tmp_path / "b.demo"
    writer = DemoWriter(path, HEADER)
    assert not path.exists()
    for episode in EPISODES:
        writer.append(episode)
    assert path.read_bytes() == whole and writer.num_episodes == 3
    found = read_demo(path)
    assert found.header == HEADER and found.lost == ""
    for a, b in zip(found.episodes, EPISODES, strict=True):
        assert_same(a, b)
        assert a.meta == b.meta


def test_a_file_is_continued_with_its_own_meta(tmp_path, whole):
    path = tmp_path / "a.demo"
    DemoWriter(path, HEADER).append(*EPISODES[:2])
    writer = DemoWriter(path, make_header(meta={"who": "another"}))
    assert writer.num_episodes == 2
    writer.append(EPISODES[2])
    assert path.read_bytes() == whole


def test_numpy_alone_reads_the_rows_as_the_page_says(whole, spans):
    start, end = spans[3]
    text_bytes, rows, row_bytes = struct.unpack_from("<III", whole, start + 8)
    table = np.frombuffer(whole[start + 24 + text_bytes : end - 16], "<f4").reshape(rows, row_bytes // 4)
    np.testing.assert_array_equal(table[:, :3], EPISODES[2].obs)
    np.testing.assert_array_equal(table[:, 6:9], EPISODES[2].next_obs)
    np.testing.assert_array_equal(table[:, -1].view("<u4"), EPISODES[2].flags)


def test_the_success_bit_says_what_the_episode_says(tmp_path):
    from dataclasses import replace

    path = tmp_path / "a.demo"
    write_demo(path, HEADER, [replace(EPISODES[0], success=False), replace(EPISODES[1], success=True)])
    failed, succeeded = read_demo(path).episodes
    assert not (failed.flags & SUCCESS).any() and (succeeded.flags & SUCCESS).all()
    np.testing.assert_array_equal(failed.flags & 1, EPISODES[0].flags & 1)


def test_a_stop_while_writing_leaves_the_file_before(tmp_path, whole, monkeypatch):
    path = tmp_path / "a.demo"
    writer = DemoWriter(path, HEADER)
    writer.append(*EPISODES[:2])
    before = path.read_bytes()
    monkeypatch.setattr("so101.files.os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(OSError, match="No space"):
        writer.append(EPISODES[2])
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    monkeypatch.undo()
    writer.append(EPISODES[2])
    assert path.read_bytes() == whole


def test_the_reader_on_the_page_reads_a_file(tmp_path, whole, monkeypatch):
    page = (Path(__file__).resolve().parents[2] / "docs" / "demo_files.md").read_text(encoding="utf-8")
    (code,) = [block for block in page.split("```python\n")[1:] if block.startswith("import json")]
    monkeypatch.chdir(tmp_path)
    Path("lift.demo").write_bytes(whole)
    names: dict = {}
    exec(code.partition("```")[0], names)
    for (seed, success, rows), episode in zip(names["episodes"], EPISODES, strict=True):
        assert (seed, success) == (episode.seed, episode.success)
        np.testing.assert_array_equal(rows[:, 3:5], episode.action)
        np.testing.assert_array_equal(rows[:, -1].view("<u4"), episode.flags)


# --- damage ----------------------------------------------------------------------------------------------------------


def test_cut_at_every_byte_every_episode_before_is_there_and_the_rest_is_named(tmp_path, whole, spans):
    path = tmp_path / "cut.demo"
    for size in range(len(whole)):
        seeds, lost = recovered(whole[:size], path)
        assert seeds == {e.seed for e, (_, end) in zip(EPISODES, spans[1:], strict=True) if end <= size}, size
        assert lost and "damaged" in refusal(path) or not seeds, size
        if spans[0][1] <= size:
            assert f"at {size} of {len(whole)}" in lost
            first_lost = len(seeds)
            assert f"episode {first_lost}" in lost or f"episodes {first_lost} to 2" in lost, (size, lost)


def test_one_changed_byte_costs_at_most_the_episode_it_is_in(tmp_path, whole, spans):
    path = tmp_path / "flip.demo"
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        seeds, lost = recovered(bytes(changed), path)
        assert seeds == {
            e.seed for e, (start, end) in zip(EPISODES, spans[1:], strict=True) if not start <= place < end
        }, place
        assert lost and "damaged: " in refusal(path), place


@given(st.data())
def test_no_damage_gives_wrong_rows_or_any_other_error(tmp_path_factory, whole, data):
    path = tmp_path_factory.getbasetemp() / "any.demo"
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        place, how = data.draw(st.integers(0, len(content))), data.draw(st.sampled_from("flip cut insert drop".split()))
        if how == "flip" and place < len(content):
            content[place] ^= data.draw(st.integers(1, 255))
        elif how == "cut":
            del content[place:]
        elif how == "insert":
            content[place:place] = data.draw(st.binary(min_size=1, max_size=40))
        elif how == "drop":
            del content[place : place + data.draw(st.integers(1, 300))]
    seeds, lost = recovered(bytes(content), path)
    assert content == whole or lost
    if content != whole:
        assert refusal(path)


@given(st.binary(max_size=200))
def test_anything_else_is_refused(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "other.demo"
    path.write_bytes(content)
    assert refusal(path) and refusal(path, strict=False)


def test_what_is_lost_is_said_in_numbers(tmp_path, whole, spans):
    path = tmp_path / "a.demo"
    row = 4 * (3 + 2 + 1 + 3 + 1 + 1)
    size = spans[3][1] - 16 - 2 * row - 1
    path.write_bytes(whole[:size])
    assert read_demo(path, strict=False).lost == (
        f"episode 2 is cut (of its 4 rows the first 1 are there, unchecked; {size - spans[3][0]} bytes from byte "
        f"{spans[3][0]} on); the file ends {len(whole) - size} bytes early, at {size} of {len(whole)}"
    )
    path.write_bytes(whole[: spans[2][0]])
    assert "episodes 1 to 2 of 3 are missing; the file ends" in read_demo(path, strict=False).lost
    assert "`./twin demo recover` writes what is whole (1 episodes)" in refusal(path)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"version": 2}, "version 2; this program reads version 1"),
        ({"magic": b"SO1DEMQ\n"}, "first 28 bytes are damaged"),
    ],
)
def test_another_version_is_no_damage(tmp_path, whole, change, text):
    import zlib

    start = struct.pack("<8sIIQ", change.get("magic", whole[:8]), change.get("version", 1), 3, len(whole))
    path = tmp_path / "a.demo"
    path.write_bytes(start + struct.pack("<I", zlib.crc32(start)) + whole[28:])
    assert text in refusal(path)


# --- what is refused when writing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"obs": np.zeros((3, 4))}, r"obs has shape \(3, 4\), needed is \(3, 3\)"),
        ({"reward": np.array([0.0, np.nan, 0.0])}, "reward is not finite in row 1"),
        ({"reward": np.array([0.0, 1e300, 0.0])}, "reward is not finite in row 1"),
        ({"action": np.full((3, 2), 1.5)}, r"normalised to \[-1, 1\]"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"meta": {"x": np.float32(1)}}, "no JSON"),
        (
            {key: getattr(EPISODES[0], key)[:0] for key in ("obs", "action", "reward", "next_obs", "done", "flags")},
            "no rows",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_an_episode_that_does_not_fit_is_refused_and_the_file_stays(tmp_path, changes, text):
    from dataclasses import replace

    writer = DemoWriter(tmp_path / "a.demo", HEADER)
    writer.append(EPISODES[0])
    before = writer.path.read_bytes()
    with pytest.raises(DataError, match=text):
        writer.append(replace(EPISODES[0], **changes))
    assert writer.path.read_bytes() == before


def test_rows_of_another_task_or_width_do_not_go_into_a_file(tmp_path):
    path = tmp_path / "a.demo"
    DemoWriter(path, HEADER).append(EPISODES[0])
    with pytest.raises(DataError, match="task is 'so101_tower_lift_brick' in one and 'so101_reach' in the other"):
        DemoWriter(path, make_header(task="so101_reach"))
    with pytest.raises(DataError, match="observation_names is '3 words' in one and '4 words' in the other"):
        DemoWriter(path, make_header(obs_dim=4))
    with pytest.raises(DataError, match="observation_names is 'word_1' in one and 'x' in the other"):
        DemoWriter(path, make_header(observation_names=("word_0", "x", "word_2")))


def test_two_writers_do_not_lose_each_others_episodes(tmp_path):
    path = tmp_path / "a.demo"
    first, second = DemoWriter(path, HEADER), DemoWriter(path, HEADER)
    first.append(EPISODES[0])
    with pytest.raises(DataError, match="changed by another program"):
        second.append(EPISODES[1])
    assert len(read_demo(path).episodes) == 1


# --- MRLDEMO1 --------------------------------------------------------------------------------------------------------


def test_the_older_kind_is_read_with_the_size_of_its_rows(tmp_path):
    header = make_header(49, 6)
    episodes = [make_episode(1, 5, header), make_episode(2, 7, header, success=False)]
    path = tmp_path / "old.demo"
    path.write_bytes(mrl_bytes(episodes))
    assert path.stat().st_size == 32 + 12 * 428 + 2 * 20
    found = read_demo(path)
    assert found.header.widths == (49, 6) and found.header.task == ""
    for a, b in zip(found.episodes, episodes, strict=True):
        np.testing.assert_array_equal(a.obs, b.obs)
        np.testing.assert_array_equal(a.flags, b.flags)
        assert a.success == b.success and a.seed == demo_file.NO_SEED
    with pytest.raises(DataError, match="cannot be continued"):
        DemoWriter(path, header)


def test_the_older_kind_cut_anywhere_gives_its_whole_episodes(tmp_path):
    content, path, row = mrl_bytes(EPISODES), tmp_path / "old.demo", 44
    ends = [3, 4, 8]
    for size in range(8, len(content)):
        path.write_bytes(content[:size])
        if size < 32:
            assert "cut within its header" in refusal(path, strict=False)
            continue
        found = read_demo(path, strict=False)
        rows = min((size - 32) // row, 8)
        # whether the last row that is there ends its episode shows only in the row after it
        assert len(found.episodes) == (3 if rows == 8 else sum(end < rows for end in ends)), size
        for a, b in zip(found.episodes, EPISODES, strict=False):
            np.testing.assert_array_equal(a.action, b.action)
            assert a.success == b.success
        assert f"{size} of {len(content)} bytes" in found.lost and "damaged" in refusal(path)


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ({"version": 9}, "version 9"),
        ({"obs": 0}, "0 observation words"),
        ({"act": 2**31}, "2147483648 actions"),
        ({"rows": 7}, "table cannot be read"),
        ({"episodes": 2}, "table cannot be read"),
    ],
)
def test_a_wrong_header_of_the_older_kind_is_refused(tmp_path, header, text):
    path = tmp_path / "old.demo"
    path.write_bytes(mrl_bytes(EPISODES, **header))
    assert text in refusal(path)


def test_a_table_of_the_older_kind_that_points_outside_is_refused(tmp_path):
    path = tmp_path / "old.demo"
    content = bytearray(mrl_bytes(EPISODES))
    content[-20:-12] = struct.pack("<Q", 6)
    path.write_bytes(content)
    assert "its table puts episode 2 outside its 8 rows" in refusal(path)
    assert len(read_demo(path, strict=False).episodes) == 3
