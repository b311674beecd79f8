"""What is lost of a damaged .demo file, in one sentence."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from so101.datasets.demo_chunks import EPISODE, HEADER, START_BYTES, Start, Wound


def lost_sentence(
    size: int, start: Start | None, wounds: Sequence[Wound], whole: Collection[int], refused: Sequence[str]
) -> str:
    """What of a file of `size` bytes is lost; "" when nothing is.

    Args:
        start: what the first bytes promise, None when they are damaged.
        wounds: what was found beside whole chunks.
        whole: numbers of the episodes that can be read.
        refused: what is wrong with chunks that are whole.
    """
    parts, named = [], set()
    for wound in wounds:
        parts.append(_wound_text(wound, wound.number in whole))
        named |= {wound.number} if wound.kind == EPISODE else set()
    parts += refused
    if start is None:
        parts.append(
            f"the first {START_BYTES} bytes are damaged, so it is not known whether episodes are missing at the end"
        )
    else:
        missing = [number for number in range(start.num_episodes) if number not in whole and number not in named]
        if missing:
            parts.append(f"{_numbers(missing)} of {start.num_episodes} {'is' if len(missing) == 1 else 'are'} missing")
        if size < start.file_bytes:
            parts.append(f"the file ends {start.file_bytes - size} bytes early, at {size} of {start.file_bytes}")
        elif size > start.file_bytes:
            parts.append(f"it has {size - start.file_bytes} bytes more than the {start.file_bytes} it was written with")
    return "; ".join(parts)


def _wound_text(wound: Wound, still_whole: bool) -> str:
    place = f"{wound.size} bytes from byte {wound.offset} on"
    if wound.kind == HEADER:
        return f"the header is damaged ({place})"
    if wound.kind != EPISODE or still_whole:
        return f"{place} are damaged"
    if wound.rows_there < wound.num_rows:
        return (
            f"episode {wound.number} is cut (of its {wound.num_rows} rows the first {wound.rows_there} are there, "
            f"unchecked; {place})"
        )
    return f"episode {wound.number} ({wound.num_rows} rows) does not fit its checksum ({place})"


def _numbers(numbers: Sequence[int]) -> str:
    """ "episode 3" or "episodes 3, 5 to 9"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    text = ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in runs)
    return f"episode{'s' if len(numbers) > 1 else ''} {text}"
