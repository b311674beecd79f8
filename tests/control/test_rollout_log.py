import numpy as np
import pytest

from so101.control.plot import write_plot
from so101.control.rollout_log import TickLog, TickRow, read_log
from so101.errors import DataError

NAMES = ("pan", "lift", "elbow", "flex", "roll", "jaw")


def row(tick: int, **changes) -> TickRow:
    values = dict(
        tick=tick, due_s=tick / 30, woke_ms=0.125, sent_ms=1.5, skipped=0, phase="policy", chunk=tick // 8,
        row=tick % 8,
        miss="", q=np.arange(6) / 10, target=np.arange(6) / 10 + 0.01, sent=np.full(6, np.nan), frame_age_ms=12.5,
    )  # fmt: skip
    return TickRow(**{**values, **changes})


def same(a: TickRow, b: TickRow) -> None:
    for name, left, right in zip(TickRow._fields, a, b, strict=True):
        if isinstance(left, str):
            assert left == right, name
        else:
            np.testing.assert_allclose(left, right, atol=1e-6, err_msg=name)


def test_what_is_written_is_read_even_before_the_end(tmp_path):
    rows = [row(0), row(1, miss="bus", phase="paused", chunk=-1, row=-1), row(2, frame_age_ms=np.nan)]
    with TickLog(tmp_path / "logs" / "a.csv", NAMES) as log:
        for each in rows:
            log.write(each)
            same(read_log(log.path)[-1], each)  # on disk at once: nothing is lost in a crash
    for found, written in zip(read_log(log.path), rows, strict=True):
        same(found, written)


def test_a_last_line_that_was_cut_off_is_left_out(tmp_path):
    with TickLog(tmp_path / "a.csv", NAMES) as log:
        for tick in range(3):
            log.write(row(tick))
    content = log.path.read_bytes()
    for cut in range(1, len(content.splitlines()[-1]) + 1):
        log.path.write_bytes(content[:-cut])
        assert [each.tick for each in read_log(log.path)] == [0, 1]


@pytest.mark.parametrize("content", [b"", b"tick,q\n1,2\n", b"\xff\xfe", b"not,a,log\n"])
def test_other_files_are_refused_with_their_name(tmp_path, content):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match="a.csv.*log of a rollout"):
        read_log(path)


def test_damage_in_the_middle_is_an_error(tmp_path):
    with TickLog(tmp_path / "a.csv", NAMES) as log:
        for tick in range(3):
            log.write(row(tick))
    lines = log.path.read_text().splitlines()
    lines[2] = "x" + lines[2]
    log.path.write_text("\n".join(lines))
    with pytest.raises(DataError, match="damaged"):
        read_log(log.path)


def test_plot_of_a_dry_run_with_a_pause(tmp_path):
    rows = [row(tick, phase="paused" if 10 < tick < 20 else "policy", miss="bus" * (tick == 5)) for tick in range(40)]
    write_plot(tmp_path / "a.png", rows, NAMES, "a dry run")
    assert (tmp_path / "a.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
