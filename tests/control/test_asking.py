import threading

import pytest

from so101.control.asking import Asker


class SlowPolicy:
    """Answers when it is let; remembers which thread asked."""

    def __init__(self) -> None:
        self.let, self.threads, self.error = threading.Event(), set(), None

    def get_action(self, observation, options=None):
        self.threads.add(threading.get_ident())
        assert self.let.wait(10)
        if self.error:
            raise self.error
        return {"asked": observation}, {"n": 1}

    def reset(self, options=None):
        self.threads.add(threading.get_ident())
        if options == {"bad": 1}:
            raise ValueError("no such option")
        return {"reset": options}


@pytest.fixture
def asker():
    made = Asker(SlowPolicy())
    yield made
    made._policy.let.set()
    made.close()


def test_asking_returns_at_once_and_the_answer_comes_when_it_is_there(asker):
    asker.ask({"q": 1})
    assert asker.waiting and asker.answer() is None and asker.answer(0.01) is None
    asker._policy.let.set()
    answer = asker.answer(10)
    assert (answer.action, answer.info, answer.error) == ({"asked": {"q": 1}}, {"n": 1}, None)
    assert not asker.waiting and asker.answer() is None
    assert answer.took_s >= 0.01


def test_errors_are_answers(asker):
    asker._policy.let.set()
    asker._policy.error = RuntimeError("out of memory")
    asker.ask({})
    assert str(asker.answer(10).error) == "out of memory"
    with pytest.raises(ValueError, match="no such option"):
        asker.reset({"bad": 1})


def test_a_forgotten_answer_is_never_taken_for_that_of_the_next_question(asker):
    asker.ask("old")
    asker.forget()
    assert not asker.waiting
    asker.ask("new")
    asker._policy.let.set()
    assert asker.answer(10).action == {"asked": "new"}


def test_the_policy_only_ever_sees_one_thread_that_is_not_ours(asker):
    asker._policy.let.set()
    asker.reset(None)
    asker.ask({})
    asker.answer(10)
    assert len(asker._policy.threads) == 1 and threading.get_ident() not in asker._policy.threads
