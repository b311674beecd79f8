import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from services.control.hub import Hub

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abc"), st.integers(0, 3)),
        st.tuples(st.just("remove"), st.sampled_from("abc"), st.none()),
        st.tuples(st.just("read"), st.integers(0, 2), st.none()),
    ),
    max_size=60,
)


class Reader:
    """A browser: its picture of the state, and what it saw last."""

    def __init__(self):
        self.seen, self.state = 0, {}

    def read(self, hub):
        news = hub.news(self.seen)
        if news.anew:
            self.state = {}
        for number, topic, value in news.changes:
            assert number > self.seen or news.anew
            self.seen = number
            self.state[topic] = value
            if value is None:
                del self.state[topic]


@settings(max_examples=200, deadline=None)
@given(ACTIONS)
def test_whoever_reads_whenever_ends_with_the_same_picture(actions):
    hub, readers, truth = Hub(), [Reader() for _ in range(3)], {}
    for kind, what, value in actions:
        if kind == "put":
            hub.put(what, value)
            truth[what] = value
        elif kind == "remove":
            hub.remove(what)
            truth.pop(what, None)
        else:
            readers[what].read(hub)
    for reader in readers:
        reader.read(hub)
        assert reader.state == truth


def test_a_slow_reader_gets_the_newest_of_each_topic_once():
    hub = Hub()
    for i in range(100_000):
        hub.put("busy", i)
    hub.put("quiet", 1)
    assert [change[1:] for change in hub.news(0).changes] == [("busy", 99_999), ("quiet", 1)]


def test_equal_values_are_no_news():
    hub = Hub()
    hub.put("a", {"x": [1]})
    seen = hub.news(0).changes[-1].number
    hub.put("a", {"x": [1]})
    assert hub.news(seen).changes == []


def test_who_missed_too_many_removals_starts_anew():
    hub = Hub()
    hub.put("stays", 1)
    seen = hub.news(0).changes[-1].number
    for i in range(1000):
        hub.put(f"run/{i}", 1)
        hub.remove(f"run/{i}")
    news = hub.news(seen)
    assert news.anew and [change.topic for change in news.changes] == ["stays"]


def test_event_ids_of_another_process_or_of_nobody_mean_from_the_start():
    hub = Hub()
    hub.put("a", 1)
    assert hub.number_of(f"{hub.epoch}-1") == 1
    for foreign in (
        None,
        "",
        "1",
        "abc-1",
        f"{hub.epoch}-",
        f"{hub.epoch}-x",
        f"{hub.epoch}-{'9' * 30}",
        f"{hub.epoch}-²",
    ):
        assert hub.number_of(foreign) == 0
    assert hub.news(5).anew  # a number that was never given


def test_threads_lose_nothing():
    hub = Hub()
    threads = [threading.Thread(target=lambda k=k: [hub.put(f"{k}", i) for i in range(2000)]) for k in range(8)]
    for thread in threads:
        thread.start()
    reader = Reader()
    while any(thread.is_alive() for thread in threads):
        reader.read(hub)
    reader.read(hub)
    assert reader.state == {f"{k}": 1999 for k in range(8)}
