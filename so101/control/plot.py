"""Commanded and observed joints of one rollout in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from so101.control.rollout_log import TickRow
from so101.files import atomic_path

_PHASES = {"paused": "0.85", "start": "0.93", "home": "0.93", "settle": "0.93"}  # greys behind what is no policy


def write_plot(path: Path | str, rows: Sequence[TickRow], joint_names: Sequence[str], title: str) -> None:
    """PNG: a panel a joint, in degrees, and how late each command was below."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    t = np.array([row.due_s for row in rows])
    observed, wanted, sent = (np.degrees([getattr(row, part) for row in rows]) for part in ("q", "target", "sent"))
    seams = [row.due_s for row, before in zip(rows[1:], rows, strict=False) if row.chunk > max(before.chunk, 0)]
    figure = Figure(figsize=(12, 2 + 1.7 * len(joint_names)), layout="constrained")
    axes = figure.subplots(len(joint_names) + 1, 1, sharex=True)
    for j, name in enumerate(joint_names):
        axes[j].plot(t, wanted[:, j], color="0.55", lw=0.9, ls=":", label="wanted")
        axes[j].plot(t, sent[:, j], color="tab:orange", lw=1.0, label="sent after limits")
        axes[j].plot(t, observed[:, j], color="tab:blue", lw=1.2, label="observed")
        axes[j].set_title(f"{name}, deg", loc="left", fontsize=9)
        for seam in seams:
            axes[j].axvline(seam, color="0.9", lw=0.6, zorder=0)
    axes[-1].plot(t, [row.sent_ms for row in rows], color="0.3", lw=0.8)
    missed = [row for row in rows if row.miss]
    axes[-1].plot([r.due_s for r in missed], [r.sent_ms for r in missed], "x", color="tab:red", ms=4)
    axes[-1].set_title("command sent after its grid time, ms; misses crossed", loc="left", fontsize=9)
    axes[-1].set_xlabel("s; a thin line is the beginning of a chunk, grey is not the policy", fontsize=8)
    for ax in axes:
        ax.tick_params(labelsize=7)
        _shade(ax, rows)
    axes[0].legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, fontsize=8)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=90, metadata={"Software": None})


def _shade(ax, rows: Sequence[TickRow]) -> None:
    begin = 0
    for i in range(1, len(rows) + 1):
        if i == len(rows) or rows[i].phase != rows[begin].phase:
            if rows[begin].phase in _PHASES:
                ax.axvspan(rows[begin].due_s, rows[i - 1].due_s, color=_PHASES[rows[begin].phase], zorder=-1, lw=0)
            begin = i
