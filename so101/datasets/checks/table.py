"""The findings as lines of text, a check each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from so101.datasets.checks.catalogue import CHECKS

if TYPE_CHECKING:
    from so101.datasets.validate import CheckReport

_SHOWN = 5  # faults of one check; a wrong rate, say, is a fault of every episode


def report_lines(report: CheckReport) -> list[str]:
    """Every check with its state; under those that found something, what and the fix."""
    width = max(map(len, CHECKS))
    lines = [f"{report.path}: {len(report.errors)} faults, {len(report.warnings)} warnings"]
    for name, check in CHECKS.items():
        lines.append(f"  {report.state(name):<8}{name:<{width}}  {check.what}")
        found = [fault for fault in report.faults if fault.check == name]
        for fix in dict.fromkeys(fault.fix for fault in found):
            texts = [fault.text for fault in found if fault.fix == fix]
            lines += [f"          - {text}" for text in texts[:_SHOWN]]
            lines += [f"          - and {len(texts) - _SHOWN} more like it"] if len(texts) > _SHOWN else []
            lines.append(f"          fix: {fix}")
    return lines
