"""Shared files at the broker: whole or not there, and only what a batch needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.errors import RemoteError
from proto.messages.work import PartRef
from services.work.parts import PartStore, digest_of


def ref(content: bytes) -> PartRef:
    return PartRef("file", digest_of(content), len(content))


@given(content=st.binary(max_size=300), step=st.integers(1, 100))
def test_pieces_become_the_whole(content, step):
    store = PartStore()
    store.declare("b", [ref(content)])
    for offset in range(0, max(len(content), 1), step):
        assert store.missing([ref(content)])
        store.put(digest_of(content), offset, memoryview(content)[offset : offset + step])
    assert store.missing([ref(content)]) == ()
    assert store.get(digest_of(content)) == content


def test_a_part_lives_as_long_as_a_batch_needs_it():
    store = PartStore()
    for batch in ("a", "b"):
        store.declare(batch, [ref(b"same")])
    store.put(digest_of(b"same"), 0, memoryview(b"same"))
    assert store.declared_bytes == 4
    store.release("a")
    assert store.get(digest_of(b"same")) == b"same"
    store.release("b")
    with pytest.raises(RemoteError, match="not here"):
        store.get(digest_of(b"same"))
    assert store.declared_bytes == 0


@pytest.mark.parametrize(
    ("offset", "content", "code"),
    [(3, b"x", "wrong_offset"), (0, b"12345", "too_large"), (0, b"evil", "wrong_digest")],
)
def test_what_is_wrong_is_refused_and_a_right_one_can_follow(offset, content, code):
    store = PartStore()
    store.declare("b", [ref(b"good")])
    with pytest.raises(RemoteError) as caught:
        store.put(digest_of(b"good"), offset, memoryview(content))
    assert caught.value.code == code
    store.put(digest_of(b"good"), 0, memoryview(b"good"))
    assert store.get(digest_of(b"good")) == b"good"


def test_what_nobody_needs_is_not_kept():
    with pytest.raises(RemoteError, match="no batch needs"):
        PartStore().put(digest_of(b"x"), 0, memoryview(b"x"))
