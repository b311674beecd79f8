import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.policy.queue import FairQueue
from services.policy.requests import Request, RequestRefused


def request(client, endpoint="get_action", size=1, number=0):
    return Request(client, [client], endpoint, {"number": number}, "w2", size=size)


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.sampled_from(["get_action", "reset"])), max_size=30))
def test_nothing_is_lost_and_nothing_doubled(asked):
    queue = FairQueue(100, 100)
    put = [request(client, endpoint, number=number) for number, (client, endpoint) in enumerate(asked)]
    replaced = [old for one in put for old in queue.put(one)]
    taken = [queue.get() for _ in range(queue.length)]
    assert sorted(r.arguments["number"] for r in replaced + taken) == list(range(len(put)))
    assert (queue.length, queue.bytes, queue.close()) == (0, 0, [])
    for client in (b"a", b"b", b"c"):  # the newest of each, a reset before the get_action after it
        mine = [r for r in taken if r.client == client]
        assert len(mine) <= 2 and [r.endpoint for r in mine] in ([], ["reset"], ["get_action"], ["reset", "get_action"])
        if mine:
            assert mine[-1] is [r for r in put if r.client == client][-1]


def test_clients_take_turns():
    queue = FairQueue(100, 100)
    for one in (request(b"a", "reset"), request(b"a"), request(b"b"), request(b"c")):
        queue.put(one)
    assert [queue.get().client for _ in range(4)] == [b"a", b"b", b"c", b"a"]


def test_who_was_not_served_for_longest_comes_first():
    """Also when its requests expired meanwhile: an overloaded server still serves all in turn."""
    queue = FairQueue(100, 100)
    queue.put(request(b"a"))
    queue.put(request(b"b"))
    assert queue.get().client == b"a"
    time.sleep(0.002)
    assert len(queue.expire(0.001)) == 1  # b
    for client in (b"a", b"new", b"b"):
        queue.put(request(client))
    assert [queue.get().client for _ in range(3)] == [b"b", b"a", b"new"]


def test_too_many_and_too_much_is_refused():
    queue = FairQueue(2, 10)
    queue.put(request(b"a", size=6))
    with pytest.raises(RequestRefused, match=r"busy: 1 requests \(6 bytes\) wait already"):
        queue.put(request(b"b", size=5))
    queue.put(request(b"b", size=4))
    with pytest.raises(RequestRefused, match="busy: 2 requests"):
        queue.put(request(b"c", size=0))
    assert [old.size for old in queue.put(request(b"a", size=6))] == [6]  # in the place of its own


def test_the_old_expire():
    queue = FairQueue(10, 10)
    queue.put(request(b"a"))
    assert queue.expire(3600) == []
    time.sleep(0.002)
    assert [r.client for r in queue.expire(0.001)] == [b"a"] and queue.length == 0


def test_close_lets_get_end():
    queue, ended = FairQueue(10, 10), []
    thread = threading.Thread(target=lambda: ended.append(queue.get()))
    thread.start()
    queue.close()
    thread.join(10)
    assert ended == [None]
    with pytest.raises(RequestRefused, match="the server is stopping"):
        queue.put(request(b"a"))
