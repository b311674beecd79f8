"""Writing files: whole or not at all, whatever the names."""

from __future__ import annotations

import os

import pytest

from so101.files import write_atomic, write_text


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(ZeroDivisionError):
        write_atomic(path, lambda file: (file.write(b"half"), 1 / 0))
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_path_that_the_locale_cannot_decode_is_written_as_its_bytes(tmp_path):
    name = "ü 雪".encode()
    write_text(tmp_path / "a.txt", name.decode("ascii", "surrogateescape"))
    assert (tmp_path / "a.txt").read_bytes() == os.fsencode("ü 雪") == name
