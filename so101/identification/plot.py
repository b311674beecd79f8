"""One picture: what was commanded, what the real arm did, what the twin does, joint by joint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from so101.files import atomic_path
from so101.identification.pieces import Piece
from so101.identification.replay import ServoReplay, Servos


def write_plot(
    path: Path | str,
    replay: ServoReplay,
    pieces: Sequence[Piece],
    before: Servos,
    after: Servos,
    joint_names: Sequence[str],
) -> None:
    """PNG of the pieces of one episode: joints in degrees above, errors of both twins below."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 15), layout="constrained")
    axes = figure.subplots(2 * len(joint_names), 1, sharex=True, height_ratios=[2.2, 1] * len(joint_names))
    begin = 0
    for piece, old, new in zip(pieces, *replay.run_many([before, after], pieces), strict=True):
        t = (begin + np.arange(len(old))) / piece.fps
        begin += len(old)
        for j in range(len(joint_names)):
            upper, lower = axes[2 * j], axes[2 * j + 1]
            shown = {
                "command": (piece.command, dict(color="0.6", lw=0.8, ls=":")),
                "real arm": (piece.measured, dict(color="black", lw=1.4)),
                "twin before": (old, dict(color="tab:orange", lw=1.0)),
                "twin after": (new, dict(color="tab:blue", lw=1.0)),
            }
            for label, (track, style) in shown.items():
                upper.plot(t, np.degrees(track[:, j]), label=None if begin > len(old) else label, **style)
            for track, color in ((old, "tab:orange"), (new, "tab:blue")):
                error = np.where(piece.counts[:, j], np.degrees(track[:, j] - piece.measured[:, j]), np.nan)
                lower.plot(t, error, color=color, lw=0.9)
    for j, name in enumerate(joint_names):
        axes[2 * j].set_title(name, loc="left", fontsize=9)
        axes[2 * j].set_ylabel("deg", fontsize=8)
        axes[2 * j + 1].set_ylabel("error", fontsize=8)
        axes[2 * j + 1].axhline(0, color="0.8", lw=0.6)
    for ax in axes:
        ax.tick_params(labelsize=7)
    axes[0].legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, fontsize=8)
    axes[-1].set_xlabel(
        f"s of {pieces[0].name}; no error where the jaw holds something or the past is not known", fontsize=8
    )
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=90, metadata={"Software": None})
