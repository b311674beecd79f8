"""The HTML of the report, section by section, from a `RunSummary`. Pure text: same summary, same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from so101.config import Config
from so101.config.report import ReportConfig
from so101.evaluation import plots
from so101.evaluation.collect import RunSummary, StageCount
from so101.evaluation.coverage import Cell, Grid, ObjectCoverage, source_skew
from so101.evaluation.maps import pictures
from so101.evaluation.statistics import SourceUse, cause_table, summarise
from so101.evaluation.style import CSS
from so101.evaluation.workspace import Workspace, area_numbers

_NARROW_SPACE = "\u202f"  # does not break
_CM = 100.0
# field of TrajectoryStatistics, title, unit, factor to that unit, digits; the first four are drawn
_METRICS = (
    ("path_length_m", "Path length", "m", 1.0, 2),
    ("duration_s", "Duration", "s", 1.0, 1),
    ("smoothness", "Path smoothness", "", 1.0, 2),
    ("mean_joint_speed_rad_s", "Mean joint speed", "deg/s", np.rad2deg(1.0), 1),
    ("peak_joint_speed_rad_s", "Peak joint speed", "deg/s", np.rad2deg(1.0), 0),
    ("command_jerk_rad_s3", "Jerk of the commands (rms)", "rad/s³", 1.0, 0),
)
_DRAWN = 4


@dataclass(frozen=True)
class SampleFrames:
    """Stills of one demo: camera -> (data URI, time s) a moment."""

    index: int
    cameras: dict[str, list[tuple[str, float]]]


@dataclass(frozen=True)
class VideoCard:
    """Videos of one demo: camera -> (relative URL, poster data URI), and a caption."""

    index: int
    caption: str
    cameras: dict[str, tuple[str, str]]


def number(value: float, digits: int = 0) -> str:
    """With narrow spaces between thousands."""
    return f"{value:,.{digits}f}".replace(",", _NARROW_SPACE)


def percent(share: float) -> str:
    return f"{100 * share:.1f}{_NARROW_SPACE}%"


def _whole_percent(share: float) -> str:
    """A share that a person set, with no more digits than it has."""
    return f"{100 * share:g}{_NARROW_SPACE}%"


def span(low: float, high: float) -> str:
    """An interval of shares, as percent, kept on one line."""
    return f'<span class="together">{100 * low:.1f} – {100 * high:.1f}{_NARROW_SPACE}%</span>'


def count_of(count: int, noun: str) -> str:
    """'1 demo', '2 demos'."""
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"


def section(anchor: str, title: str, lead: str, body: str) -> str:
    text = f'<p class="lead">{lead}</p>' if lead else ""
    head = f'<h2 id="{anchor}-title">{title}</h2>'
    return f'<section id="{anchor}" aria-labelledby="{anchor}-title">{head}{text}{body}</section>'


def not_run(command: str) -> str:
    return f'<p class="none">Not run yet: <code>./twin {command}</code> makes this.</p>'


def key(entries: Iterable[tuple[str, str, str]]) -> str:
    """Legend of (text, CSS colour variable, shape class)."""
    marks = (f'<span class="{shape}" style="--c: var(--{c})">{escape(text)}</span>' for text, c, shape in entries)
    return f'<p class="key">{"".join(marks)}</p>'


def render_page(
    config: Config,
    run_name: str,
    summary: RunSummary,
    frames: SampleFrames | None,
    videos: list[VideoCard],
    versions: Mapping[str, str],
    maps: Workspace | None = None,
) -> str:
    """The whole page. Without `maps` it says which command draws them."""
    task = config.task.active
    parts = [
        ("pipeline", "Pipeline", _pipeline(summary, config)),
        ("causes", "Causes of failure", _causes(summary)),
        ("starts", "Start poses", _starts(summary, config, maps)),
        ("workspace", "Workspace", _workspace(maps)),
        ("trajectories", "Trajectories", _trajectories(summary)),
        ("sources", "Sources", _sources(summary, config)),
        ("frames", "Frames", _frames(frames)),
        ("videos", "Videos", _videos(videos, summary)),
        ("seeds", "Seeds", _seeds(summary)),
        ("origin", "Origin", _origin(config, versions)),
    ]
    links = "".join(f'<a href="#{anchor}">{title}</a>' for anchor, title, _ in parts)
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(run_name)}: {escape(task.language)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,"><style>{CSS}</style></head>\n<body>\n'
        '<a class="skip" href="#pipeline">Skip to the results</a><div class="page"><header>\n'
        f'<p class="over">SO-101 run <b>{escape(run_name)}</b> · task <code>{escape(config.task.name)}</code></p>\n'
        f"<h1>{escape(task.language)}</h1>{_tiles(summary)}<nav aria-label='Sections'>{links}</nav></header>\n<main>\n"
        + "\n".join(body for _, _, body in parts)
        + "\n</main></div></body></html>\n"
    )


def _tile(label: str, value: str | None, detail: str) -> str:
    shown = f'<div class="value">{value}</div>' if value is not None else '<div class="value none">not run</div>'
    return f'<div class="tile"><div class="label">{label}</div>{shown}<div class="detail">{detail}</div></div>'


def _tiles(summary: RunSummary) -> str:
    seeds, strict = summary.stage("seeds"), summary.stage("strict")
    verified, dataset = summary.stage("verified"), summary.stage("in dataset")
    tiles = [
        _tile(
            "Seeds",
            None if seeds.count is None else number(seeds.count),
            f"of {count_of(seeds.of, 'recording')}" if seeds.of else "demonstrations to multiply",
        ),
        _tile(
            "Strict success",
            None if strict.count is None else percent(strict.share) if strict.share is not None else "none tried",
            f"{number(strict.count)} of {count_of(strict.of, 'attempt')}, {span(*strict.interval)}"
            if strict.interval
            else "no attempts yet",
        ),
        _tile(
            "Verified by replay",
            None if verified.count is None else number(verified.count),
            f"of {count_of(verified.of, 'demo')}, {span(*verified.interval)}" if verified.interval else "no demos yet",
        ),
        _tile(
            "In the dataset",
            None if dataset.count is None else number(dataset.count),
            count_of(summary.frames["dataset"], "frame") if "dataset" in summary.frames else "episodes",
        ),
    ]
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _share_cell(stage: StageCount) -> str:
    if stage.count is None:
        return '<td class="none">not run</td>'
    if stage.share is None:
        return "<td></td>"
    mark = text = ""
    if stage.interval is not None:
        low, high = stage.interval
        mark = f'<b style="left:{100 * low:.2f}%;width:{100 * (high - low):.2f}%"></b>'
        text = f" · {span(low, high)}"
    return (
        f'<td><div class="bar" aria-hidden="true"><i style="width:{100 * min(stage.share, 1.0):.2f}%"></i>{mark}</div>'
        f'{percent(stage.share)} <span class="note">of {number(stage.of)} {stage.of_name}{text}</span></td>'
    )


def _pipeline(summary: RunSummary, config: Config) -> str:
    rows = "".join(
        f'<tr><th scope="row">{stage.name}<span class="meaning">{stage.meaning}</span></th>'
        f'<td class="num">{"–" if stage.count is None else number(stage.count)}</td>{_share_cell(stage)}</tr>'
        for stage in summary.stages
    )
    facts = []
    if summary.seed_range:
        first, last = summary.seed_range
        facts.append(f"Attempt seeds {first} to {last}, n = {number(summary.attempts)}.")
    if summary.frames:
        facts.append("Frames: " + ", ".join(f"{source} {number(n)}" for source, n in summary.frames.items()) + ".")
    confidence = _whole_percent(config.dataset.report.confidence)
    return section(
        "pipeline",
        "From seeds to dataset",
        f"How many demonstrations each stage leaves. Ranges and marks on the bars are {confidence} Wilson intervals.",
        '<div class="scroll"><table><thead><tr><th scope="col">Stage</th><th scope="col" class="num">Count</th>'
        f'<th scope="col" style="width:48%">Share</th></tr></thead><tbody>{rows}</tbody></table></div>'
        f'<p class="note">{" ".join(facts)}</p>',
    )


def _bar_rows(rows: list[tuple[str, list[tuple[int, str]], str]]) -> str:
    """Rows of (name, [(count, CSS class)], text) as a table of bars on one scale."""
    scale = max((sum(count for count, _ in parts) for _, parts, _ in rows), default=0) or 1
    lines = []
    for name, parts, text in rows:
        bars = "".join(f'<i class="{style}" style="width:{100 * n / scale:.2f}%"></i>' for n, style in parts if n)
        lines.append(
            f'<tr><td class="source">{escape(name)}</td><td class="wide">'
            f'<div class="bar plain" aria-hidden="true">{bars}</div></td><td class="num">{text}</td></tr>'
        )
    return f"<table><tbody>{''.join(lines)}</tbody></table>"


def _causes(summary: RunSummary) -> str:
    if summary.attempts is None:
        return section("causes", "Causes of failure", "", not_run("generate"))
    total = sum(count for _, count, _ in summary.causes)
    left = "<p>Every attempt is a strict success.</p>" if summary.attempts else "<p>Nothing was attempted.</p>"
    if summary.causes:
        rows = [
            (cause.replace("_", " "), [(count - loose, "bad"), (loose, "soft")], f"{count} · {percent(count / total)}")
            for cause, count, loose in summary.causes
        ]
        left = _bar_rows(rows)
        if any(loose for _, _, loose in summary.causes):
            left = key([("failed", "bad", ""), ("passes the loose filter only", "soft", "")]) + left
    right = not_run("verify")
    if summary.stage("verified").count is not None:
        right = "<p>Every replayed demo succeeded again.</p>"
        if summary.replay_causes:
            rows = [(cause.replace("_", " "), [(n, "bad")], str(n)) for cause, n in summary.replay_causes]
            right = _bar_rows(rows)
        elif not summary.stage("verified").of:
            right = "<p>Nothing was replayed.</p>"
    lead = f"{count_of(total, 'attempt')} of {number(summary.attempts)} did not end as a strict success."
    halves = f"<div><h3>Generation</h3>{left}</div><div><h3>Replay after smoothing</h3>{right}</div>"
    return section("causes", "Causes of failure", lead, f'<div class="two">{halves}</div>')


def _starts(summary: RunSummary, config: Config, maps: Workspace | None) -> str:
    title = "Coverage of start poses"
    if not summary.coverage:
        body = not_run("generate") if summary.attempts is None else "<p>No attempt tells its start poses.</p>"
        return section("starts", title, "", body)
    settings = config.dataset.report
    figures = "".join(
        f"<figure>{figure}</figure>" for one in summary.coverage for figure in _start_figures(one, settings)
    )
    rows = "".join(map(_coverage_row, summary.coverage))
    heads = ("Object", "Position cells with a success", "never tried", "Heading cells with a success", "never tried")
    table = (
        '<div class="scroll" tabindex="0"><table><thead><tr>'
        + "".join(f'<th scope="col">{head}</th>' for head in heads)
        + f"</tr></thead><tbody>{rows}</tbody></table></div>"
    )
    legend = key(
        [
            ("strict success", "good", ""),
            ("not a strict success", "bad", "cross"),
            ("configured range", "muted", "dashed"),
            (f"under {_whole_percent(settings.coverage_low_share)} of a cell's attempts succeed", "bad", "framed"),
        ]
    )
    notes = " ".join(filter(None, map(_left_out, summary.coverage)))
    return section(
        "starts",
        title,
        "Where the objects stood when an attempt began, in world, and whether it became a strict success (of several "
        "objects that are moved, each its own). A policy will not have seen the cells without one. Headings are "
        "relative to the nominal pose.",
        legend
        + f'<div class="figures">{figures}</div>'
        + (f'<p class="note">{notes}</p>' if notes else "")
        + table
        + _low_cells(summary.coverage, settings, maps),
    )


def _start_figures(coverage: ObjectCoverage, settings: ReportConfig) -> list[str]:
    """Starts, success by position cell and, where it varies, by heading."""
    name, anchor = coverage.name, "".join(filter(str.isalnum, coverage.name))
    grid, low = coverage.position, settings.coverage_low_share
    x_cm, y_cm = (edges * _CM for edges in grid.edges)
    figures = [
        plots.start_scatter(
            *(coverage.positions * _CM).T,
            coverage.success,
            (x_cm[0], x_cm[-1]),
            (y_cm[0], y_cm[-1]),
            f"{name}: start positions",
            "cm",
            f"s{anchor}",
        ),
        plots.start_rates(
            grid.tried, grid.succeeded, x_cm, y_cm, low, f"{name}: successes / attempts", "cm", f"r{anchor}"
        ),
    ]
    heading = coverage.heading
    if heading.tried.size > 1:
        edges = np.rad2deg(heading.edges[0])
        figures.append(
            plots.heading_bars(heading.tried, heading.succeeded, edges, f"{name}: start headings", f"h{anchor}")
        )
    return figures


def _coverage_row(coverage: ObjectCoverage) -> str:
    cells = ""
    for grid in (coverage.position, coverage.heading):
        hit, total = int((grid.succeeded > 0).sum()), grid.tried.size
        cells += f"<td>{hit} of {total} · {percent(grid.covered_share)}</td><td>{int((grid.tried == 0).sum())}</td>"
    role = "moved" if coverage.moved else "stands"
    return f'<tr><th scope="row">{escape(coverage.name)} <span class="note">{role}</span></th>{cells}</tr>'


def _left_out(coverage: ObjectCoverage) -> str:
    """What is in no cell of an object, as a sentence."""
    outside, parts = int((~coverage.inside).sum()), []
    if outside:
        parts.append(f"{count_of(outside, 'start')} outside the configured ranges")
    if coverage.elsewhere:
        parts.append(f"{count_of(coverage.elsewhere, 'attempt')} that ended in a subtask of other objects")
    return f"Not in the cells of {escape(coverage.name)}: {' and '.join(parts)}." if parts else ""


def _low_cells(coverages: Sequence[ObjectCoverage], settings: ReportConfig, maps: Workspace | None) -> str:
    """Table of the cells with too few successes."""

    def served(coverage: ObjectCoverage, grid: Grid, cell: Cell) -> float | None:
        known = maps is not None and coverage.moved and grid is coverage.position
        return maps.table.yaw_share_in(*cell.limits) if known else None

    share, confidence = settings.coverage_low_share, settings.confidence
    rows = [
        _low_row(coverage.name, grid, cell, confidence, served(coverage, grid, cell))
        for coverage in coverages
        for grid in (coverage.position, coverage.heading)
        for cell in grid.low(share, confidence)
    ]
    title = f"<h3>Cells in which under {_whole_percent(share)} of the attempts succeed</h3>"
    if not rows:
        return f"{title}<p>None of the cells that were tried.</p>"
    heads = '<th scope="col">Object</th><th scope="col">Cell</th><th scope="col" class="num">Successes / attempts</th>'
    heads += f'<th scope="col">{_whole_percent(confidence)} Wilson</th><th scope="col">Causes</th>'
    heads += '<th scope="col">Yaws the arm serves</th>'

    def table(part: list[str]) -> str:
        body = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(part)}</tbody></table>"
        return f'<div class="scroll" tabindex="0">{body}</div>'

    shown, rest = rows[: settings.coverage_low_cells], rows[settings.coverage_low_cells :]
    text = title + (table(shown) if shown else "")
    return text + (f"<details><summary>{len(rest)} more</summary>{table(rest)}</details>" if rest else "")


def _low_row(name: str, grid: Grid, cell: Cell, confidence: float, yaws_served: float | None) -> str:
    parts = []
    for axis, (low, high) in zip(grid.axes, cell.limits, strict=True):
        label, _, unit = axis.rpartition("_")
        scale, shown = (np.rad2deg(1.0), "deg") if unit == "rad" else (_CM, "cm")
        parts.append(f'<span class="together">{label} {scale * low:.1f} to {scale * high:.1f} {shown}</span>')
    causes = ", ".join(f"{escape(cause.replace('_', ' '))} {count}" for cause, count in cell.causes.items())
    return (
        f'<tr><th scope="row">{escape(name)}</th><td>{", ".join(parts)}</td>'
        f'<td class="num">{cell.succeeded} / {cell.tried}</td><td>{span(*cell.interval(confidence))}</td>'
        f"<td>{causes}</td><td>{'' if yaws_served is None else percent(yaws_served)}</td></tr>"
    )


def _workspace(maps: Workspace | None) -> str:
    title = "What the arm reaches"
    if maps is None:
        body = '<p class="none">Not on this page: <code>./twin workspace --out FOLDER</code> draws it.</p>'
        return section("workspace", title, "", body)
    figures = "".join(f"<figure>{picture}</figure>" for picture in pictures(maps).values())
    heads = ("Start area of", "Cells reached", "Yaws served", "Approaches served in all of them", "Nearest joint limit")
    rows = ""
    for area in maps.areas:
        numbers = area_numbers(maps, area)
        dips, margin = numbers["dips_deg"], numbers["limit_margin"]
        cells = (
            f"{numbers['reached']} of {numbers['cells']}",
            percent(numbers["yaw_share"]),
            "none" if dips is None else f"{dips[0]:g} to {dips[1]:g} deg down",
            "" if margin is None else f"{numbers['nearest_joint'].replace('_', ' ')}, {percent(margin)} of its range",
        )
        row = "".join(f"<td>{cell}</td>" for cell in cells)
        rows += f'<tr><th scope="row">{escape(area.name)}</th>{row}</tr>'
    table = (
        '<div class="scroll" tabindex="0"><table><thead><tr>'
        + "".join(f'<th scope="col">{head}</th>' for head in heads)
        + f"</tr></thead><tbody>{rows}</tbody></table></div>"
    )
    lead = (
        f"By inverse kinematics alone, {_CM * maps.table.height_m:.1f} cm over the base, where the task's object is "
        "grasped; nothing is in the way. Dashed: where the objects start. Room to the joint limits is that of the "
        "solution that stays farthest from them, as a share of the joint's range; the joint named is nearest to its "
        "limit. The last picture is the arm's own plane: where the joint limits leave an approach so steep."
    )
    return section("workspace", title, lead, f'<div class="figures">{figures}</div>{table}')


def _trajectories(summary: RunSummary) -> str:
    lead = (
        "One value a demonstration, of the measured arm; jerk of the commanded joints. Path smoothness is the sum of "
        "the second differences of the end effector's path over its length: lower is smoother. A line is the median, "
        "a thick bar the middle half."
    )
    if not any(summary.statistics.values()):
        return section("trajectories", "Trajectory statistics", "", not_run("generate"))
    figures, rows = [], []
    for place, (field, title, unit, factor, digits) in enumerate(_METRICS):
        samples = {
            source: [factor * getattr(row, field) for row in rows_] for source, rows_ in summary.statistics.items()
        }
        if place < _DRAWN:
            figures.append(f"<figure>{plots.violins(samples, title, unit, f'v{place}')}</figure>")
        cells = []
        for values in samples.values():
            five = summarise(values)
            cells.append(
                '<td class="none">none</td>'
                if five is None
                else f"<td>{number(five.median, digits)} "
                f'<span class="note together">{number(five.p5, digits)} – {number(five.p95, digits)}</span></td>'
            )
        name = f"{title} [{unit}]" if unit else title
        rows.append(f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>')
    heads = "".join(
        f'<th scope="col">{source}, n = {number(len(values))}</th>' for source, values in summary.statistics.items()
    )
    table = (
        '<h3>Median and 5th to 95th percentile</h3><div class="scroll" tabindex="0"><table><thead><tr>'
        f'<th scope="col">Statistic</th>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )
    body = f'<div class="figures four">{"".join(figures)}</div>{table}'
    return section("trajectories", "Trajectory statistics", lead, body)


def _sources(summary: RunSummary, config: Config) -> str:
    if not summary.usage:
        body = not_run("generate") if summary.attempts is None else "<p>No attempt names its sources.</p>"
        return section("sources", "Which seeds were used", "", body)
    top = config.dataset.report.top_sources
    legend = key([("attempt became a strict success", "good", ""), ("it did not", "bad", "")])
    blocks = [
        f"<div><h3>{escape(subtask)}</h3>{_subtask_sources(uses, top)}</div>" for subtask, uses in summary.usage.items()
    ]
    return section(
        "sources",
        "Which seeds were used",
        "The seed that each subtask was taken from, over all attempts. A dataset that leans on few seeds repeats their "
        "habits.",
        legend + f'<div class="two">{"".join(blocks)}</div>',
    )


def _subtask_sources(uses: list[SourceUse], top: int) -> str:
    def rows(part: list[SourceUse]) -> list[tuple[str, list[tuple[int, str]], str]]:
        return [
            (
                use.source,
                [(use.succeeded, ""), (use.used - use.succeeded, "bad")],
                f"{use.succeeded} / {use.used} · {percent(use.succeeded / use.used)}",
            )
            for use in part
        ]

    skew = source_skew(uses)
    text = _bar_rows(rows(uses[:top]))
    if len(uses) > top:
        text += f"<details><summary>{len(uses) - top} more</summary>{_bar_rows(rows(uses[top:]))}</details>"
    share = (
        f"; the most used one serves {percent(skew.top_share)} of the attempts, as varied as "
        f"{skew.effective:.1f} evenly used ones"
        if skew.seeds > 1
        else ""
    )
    return f'<p class="note">{count_of(skew.seeds, "seed")} in use{share}.</p>{text}'


def _frames(frames: SampleFrames | None) -> str:
    if frames is None:
        return section("frames", "Sample frames", "", not_run("render"))
    cells = []
    for camera, stills in frames.cameras.items():
        cells.append(f'<div class="camera">{escape(camera)}</div>')
        for uri, time in stills:
            alt = escape(f"{camera} camera at {time:.1f} s")
            cells.append(f'<div><img src="{uri}" alt="{alt}"><span class="time">{time:.1f} s</span></div>')
    moments = max(len(stills) for stills in frames.cameras.values())
    grid = f'<div class="frames" style="--moments:{moments}">{"".join(cells)}</div>'
    body = f'<div class="scroll" tabindex="0">{grid}</div>'
    lead = f"Demo {frames.index} as each camera sees it, decoded from its videos."
    return section("frames", "Sample frames", lead, body)


def _videos(videos: list[VideoCard], summary: RunSummary) -> str:
    if not videos:
        return section("videos", "Videos", "", not_run("render"))
    cards = []
    for card in videos:
        views = "".join(
            f'<figure><video controls muted loop playsinline preload="none" src="{escape(url)}" poster="{poster}" '
            f'aria-label="demo {card.index}, {escape(camera)} camera"></video>'
            f"<figcaption>{escape(camera)}</figcaption></figure>"
            for camera, (url, poster) in card.cameras.items()
        )
        cards.append(
            f'<article><h3>Demo {card.index} <span class="note">{escape(card.caption)}</span></h3>'
            f'<div class="views" tabindex="0">{views}</div></article>'
        )
    lead = f"The first {len(videos)} of {count_of(len(summary.videos), 'rendered demo')}."
    return section("videos", "Videos", lead, f'<div class="demos">{"".join(cards)}</div>')


def _plain(value: Any) -> str:
    """A JSON value as short text for a table cell."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(_plain(item) for item in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _seed_row(entry: dict[str, Any]) -> str:
    outcome = "kept" if entry["kept"] else escape(str(entry.get("cause") or "not kept").replace("_", " "))
    mark = "" if entry["kept"] else ' class="none"'
    details = [
        f"{escape(str(name))}: {escape(_plain(value))}"
        for name, value in entry.items()
        if name not in ("name", "kept", "cause") and value not in (None, "", [], {})
    ]
    return (
        f'<tr><td class="source">{escape(str(entry["name"]))}</td><td{mark}>{outcome}</td>'
        f'<td class="note">{"<br>".join(details)}</td></tr>'
    )


def _seeds(summary: RunSummary) -> str:
    title, report = "Where the seeds come from", summary.seeds_report
    if report is None:
        return section("seeds", title, "", not_run("seeds"))
    if not report.candidates:
        return section("seeds", title, "", f"<p>No recording in {escape(report.source)}.</p>")
    total = len(report.candidates)
    causes = [str(entry.get("cause") or "no cause given") for entry in report.candidates if not entry["kept"]]
    rows = [("usable", [(report.kept, "")], str(report.kept))] if report.kept else []
    rows += [(cause.replace("_", " "), [(n, "bad")], str(n)) for cause, n in cause_table(causes)]
    assumed = "".join(f"<li>{escape(text)}</li>" for text in report.assumptions)
    assumed = f"<h3>Assumed of all of them</h3><ul>{assumed}</ul>" if assumed else ""
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("Recording", "Outcome", "Details"))
    body = "".join(map(_seed_row, report.candidates))
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    table = f'<details><summary>Each recording</summary><div class="scroll" tabindex="0">{table}</div></details>'
    usable = "a usable seed" if report.kept == 1 else "usable seeds"
    lead = f"Source: {escape(report.source)}. {report.kept} of {count_of(total, 'recording')} became {usable}."
    return section("seeds", title, lead, _bar_rows(rows) + assumed + table)


def _origin(config: Config, versions: Mapping[str, str]) -> str:
    pairs = [("Configuration digest", f"<code>{config.digest()}</code>")]
    pairs += [(escape(name), f"<code>{escape(version)}</code>") for name, version in versions.items()]
    sections = [(f"{name}.yaml", f"<code>{config.digest(name)}</code>") for name in type(config).model_fields]

    def listing(items: list[tuple[str, str]]) -> str:
        return '<dl class="pairs">' + "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in items) + "</dl>"

    return section(
        "origin",
        "Made with",
        "The same configuration, seeds and versions give the same files.",
        listing(pairs) + f"<details><summary>Digest of each configuration file</summary>{listing(sections)}</details>",
    )
