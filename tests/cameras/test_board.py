"""Newest frame wins."""

from __future__ import annotations

import threading
import time

import numpy as np

from so101.cameras.base import Frame, stamped
from so101.cameras.board import FrameBoard

PICTURE = np.zeros((2, 2, 3), np.uint8)


def frame(index: int, camera: str = "ego", age_s: float = 0.0) -> Frame:
    return stamped(PICTURE, time.monotonic() - age_s, index, camera)


def test_each_frame_is_taken_once_and_only_the_newest():
    board = FrameBoard()
    for index in range(5):
        board.put(frame(index))
    board.put(frame(7, "top"))
    assert {(f.camera, f.index) for f in board.take(0)} == {("ego", 4), ("top", 7)}
    assert board.take(0) == []
    assert board.skipped == {"ego": 4, "top": 0}
    assert board.newest("ego").index == 4 and board.newest("side") is None


def test_put_taken_and_skipped_add_up_whatever_the_threads_do():
    board, ended, taken = FrameBoard(), threading.Event(), []

    def reader():
        while not ended.is_set():
            taken.extend(board.take(0.01))

    threads = [threading.Thread(target=reader) for _ in range(2)]
    writers = [
        threading.Thread(target=lambda name=name: [board.put(frame(i, name)) for i in range(2000)]) for name in "ab"
    ]
    for thread in threads + writers:
        thread.start()
    for writer in writers:
        writer.join()
    ended.set()
    for thread in threads:
        thread.join()
    taken += board.take(0)
    for name in "ab":
        indices = [f.index for f in taken if f.camera == name]
        assert len(indices) + board.skipped[name] == 2000
        assert max(indices) == 1999 and len(set(indices)) == len(indices)


def test_waiting_ends_with_the_frame_not_with_the_timeout():
    board = FrameBoard()
    threading.Timer(0.05, lambda: board.put(frame(1))).start()
    assert board.take(30.0)[0].index == 1
    threading.Timer(0.05, lambda: board.put(frame(2, "top"))).start()
    assert set(board.wait_for(("ego", "top"), 60.0, 30.0)) == {"ego", "top"}


def test_old_frames_do_not_count():
    board = FrameBoard()
    board.put(frame(1, "ego", age_s=2.0))
    board.put(frame(1, "top", age_s=0.0))
    assert set(board.wait_for(("ego", "top"), 1.0, 0.01)) == {"top"}
    assert set(board.wait_for(("ego", "top"), 60.0, 0.01)) == {"ego", "top"}
