"""A buffer is used again when nobody can see it, and never before."""

from __future__ import annotations

import gc
import threading

import numpy as np
import zmq

from so101.cameras.buffers import BufferPool


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_a_dropped_buffer_is_used_again():
    pool = BufferPool(48, 64, 4)
    first = address(pool.take())
    assert all(address(pool.take()) == first for _ in range(10))


def test_no_buffer_that_anyone_can_see_is_handed_out():
    """Through the array, a slice of a slice, a memoryview, numpy over a memoryview."""
    pool = BufferPool(48, 64, 4)
    holders = [
        lambda array: array,
        lambda array: array[3:][1:, ::2, 0],
        lambda array: array.reshape(-1).view(np.uint8).data,
        lambda array: np.frombuffer(array.reshape(-1).data, np.uint8),
    ]
    held = []
    for number, hold in enumerate(holders):
        buffer = pool.take()
        buffer[:] = number
        held.append(hold(buffer))
        del buffer
    later = [pool.take() for _ in range(6)]
    for buffer in later:
        buffer[:] = 99
    assert [set(np.asarray(view).ravel().tolist()) for view in held] == [{0}, {1}, {2}, {3}]


def test_buffers_come_back_in_any_order_and_the_pool_keeps_no_more_than_its_size():
    pool = BufferPool(4, 4, 3)
    taken = [pool.take() for _ in range(8)]
    pooled = {address(buffer) for buffer in taken[:3]}
    del taken
    again = [pool.take() for _ in range(3)]
    assert {address(buffer) for buffer in again} == pooled


def test_what_zmq_has_not_sent_yet_is_not_handed_out(tmp_path):
    """A peer that does not read: frames wait in the socket, sent from where they lie."""
    pool = BufferPool(480, 640, 2)
    context = zmq.Context()
    push, pull = context.socket(zmq.PUSH), context.socket(zmq.PULL)
    try:
        push.sndhwm, pull.rcvhwm, push.sndtimeo = 100, 1, 10_000
        push.bind(f"ipc://{tmp_path}/s")
        pull.connect(f"ipc://{tmp_path}/s")
        for number in range(20):
            buffer = pool.take()
            buffer[:] = number
            push.send(buffer.reshape(-1).data, copy=False)
            del buffer
        for number in range(20):
            assert pull.poll(10_000)
            assert set(np.frombuffer(pull.recv(), np.uint8).tolist()) == {number}
    finally:
        push.close(0)
        pull.close(0)
        context.term()


def test_buffers_may_be_dropped_in_another_thread():
    pool, handed = BufferPool(4, 4, 2), []
    for _ in range(200):
        handed.append(pool.take())
        if len(handed) == 2:
            thread = threading.Thread(target=handed.clear)
            thread.start()
            thread.join()
    gc.collect()
    assert len({address(pool.take()) for _ in range(5)}) == 1
