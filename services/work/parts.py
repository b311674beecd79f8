"""Files that all jobs of a batch share, by the SHA-256 of their bytes: each is kept once, while a batch needs it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from proto.errors import RemoteError
from proto.messages.work import PartRef


def digest_of(content: bytes) -> str:
    """The name of `content`."""
    return hashlib.sha256(content).hexdigest()


class PartStore:
    """Parts in memory. A part is there when its last piece has come and the digest agrees."""

    def __init__(self) -> None:
        self._needed_by: dict[str, set[str]] = {}  # digest -> batches
        self._sizes: dict[str, int] = {}
        self._pieces: dict[str, bytearray] = {}
        self._whole: dict[str, bytes] = {}

    @property
    def declared_bytes(self) -> int:
        """What all parts take when they are whole."""
        return sum(self._sizes.values())

    def declare(self, batch: str, refs: Sequence[PartRef]) -> None:
        """`batch` needs these parts."""
        for ref in refs:
            self._needed_by.setdefault(ref.digest, set()).add(batch)
            self._sizes.setdefault(ref.digest, ref.size)

    def release(self, batch: str) -> None:
        """`batch` needs nothing any more."""
        for digest, batches in list(self._needed_by.items()):
            batches.discard(batch)
            if not batches:
                del self._needed_by[digest], self._sizes[digest]
                self._pieces.pop(digest, None)
                self._whole.pop(digest, None)

    def missing(self, refs: Sequence[PartRef]) -> tuple[str, ...]:
        """Digests of `refs` that are not whole, each once."""
        return tuple(dict.fromkeys(ref.digest for ref in refs if ref.digest not in self._whole))

    def put(self, digest: str, offset: int, content: memoryview) -> None:
        """Add a piece. Pieces come in order; one at offset 0 begins anew; what is whole stays as it is.

        Raises:
            RemoteError: nobody needs it, a piece is missing before it, too long, or the digest is another one.
        """
        if digest not in self._needed_by:
            raise RemoteError("unknown_part", f"no batch needs part {digest[:12]}")
        if digest in self._whole:
            return
        if offset == 0:
            self._pieces[digest] = bytearray()
        pieces = self._pieces.get(digest, bytearray())
        if offset != len(pieces):
            raise RemoteError("wrong_offset", f"part {digest[:12]}: piece at {offset}, {len(pieces)} bytes came so far")
        size = self._sizes[digest]
        if offset + len(content) > size:
            raise RemoteError("too_large", f"part {digest[:12]}: more than the {size} bytes it was said to have")
        pieces += content
        if len(pieces) < size:
            return
        del self._pieces[digest]
        if digest_of(pieces) != digest:
            raise RemoteError("wrong_digest", f"the {size} bytes of part {digest[:12]} have another SHA-256")
        self._whole[digest] = bytes(pieces)

    def get(self, digest: str) -> bytes:
        """A whole part.

        Raises:
            RemoteError: it is not here.
        """
        try:
            return self._whole[digest]
        except KeyError:
            raise RemoteError("unknown_part", f"part {digest[:12]} is not here (any more)") from None
