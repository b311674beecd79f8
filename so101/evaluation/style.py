"""Style sheet of the report: one column of cards, light and dark, from phone to desktop. No script."""

# The light colours below, for pictures outside of the report.
INK, MUTED, LINE = "#161a22", "#586273", "#dfe3ea"
BLUE, ORANGE, TEAL, VIOLET = "#1b66c9", "#c2410c", "#0b7d70", "#7550c8"  # good, bad, generated, seeds

CSS = """
:root {
  color-scheme: light dark;
  --font: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  --bg: #f4f5f8; --card: #ffffff; --ink: #161a22; --muted: #586273; --line: #dfe3ea;
  --good: #1b66c9; --bad: #c2410c; --soft: #eba98b; --range: #0b2e63;
  --seeds: #7550c8; --generated: #0b7d70; --verified: #1b66c9;
}
@media (prefers-color-scheme: dark) {
  :root {
    --bg: #0e1116; --card: #171b22; --ink: #e9ecf1; --muted: #9aa5b5; --line: #2b323d;
    --good: #62a8f7; --bad: #f28a4f; --soft: #8a563a; --range: #dcebff;
    --seeds: #ab90f2; --generated: #45c4b2; --verified: #62a8f7;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0; background: var(--bg); color: var(--ink); font: 16px/1.5 var(--font); }
a { color: var(--good); }
a:focus-visible, summary:focus-visible, video:focus-visible, [tabindex]:focus-visible {
  outline: 2px solid var(--good); outline-offset: 2px;
}
.page { max-width: 1120px; margin: 0 auto; padding: 28px 20px 64px; }
.skip { position: absolute; left: -999px; }
.skip:focus { left: 12px; top: 12px; background: var(--card); padding: 8px 12px; }
header .over { color: var(--muted); font-size: .85rem; margin: 0; }
h1 { font-size: clamp(1.45rem, 4.2vw, 2.1rem); line-height: 1.2; margin: 4px 0 14px; letter-spacing: -.015em; }
h2 { font-size: 1.18rem; margin: 0 0 4px; letter-spacing: -.01em; }
h3 { font-size: .95rem; margin: 22px 0 8px; }
h3 .note { font-weight: 400; }
p { margin: 0 0 12px; max-width: 72ch; }
.lead, .note, figcaption, .meaning { color: var(--muted); }
.note, figcaption, .meaning { font-size: .85rem; }
nav { display: flex; flex-wrap: wrap; gap: 2px 18px; font-size: .9rem; margin: 18px 0 0; }
nav a { text-decoration: none; padding: 6px 0; }
nav a:hover { text-decoration: underline; }
section {
  background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 22px; margin-top: 18px;
}
section > .lead { font-size: .92rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); gap: 14px; margin-top: 6px; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 14px 18px; }
.tile .value {
  font-size: 1.9rem; font-weight: 650; line-height: 1.2; letter-spacing: -.02em; font-variant-numeric: tabular-nums;
}
.tile .label { font-size: .85rem; font-weight: 600; }
.tile .detail { font-size: .82rem; color: var(--muted); }
.tile .value.none { color: var(--muted); font-size: 1.25rem; font-weight: 500; line-height: 1.9rem; letter-spacing: 0; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th { text-align: left; font-weight: 600; color: var(--muted); font-size: .8rem; }
tbody th { color: var(--ink); font-size: .9rem; font-weight: 600; }
th, td { padding: 8px 14px 8px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th:last-child, td:last-child { padding-right: 0; }
tbody tr:last-child th, tbody tr:last-child td { border-bottom: 0; }
.num { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.scroll { overflow-x: auto; }
.meaning { font-weight: 400; display: block; }
.none { color: var(--muted); font-style: italic; }
.bar {
  position: relative; display: flex; height: 12px; background: var(--line); border-radius: 3px; margin: 5px 0 3px;
}
.bar i { display: block; height: 100%; background: var(--good); min-width: 0; }
.bar i.bad { background: var(--bad); }
.bar i.soft { background: var(--soft); }
.bar i:first-child { border-radius: 3px 0 0 3px; }
.bar b { position: absolute; top: 4.5px; height: 3px; background: var(--range); border-radius: 2px; min-width: 2px; }
.bar.plain { background: none; }
.wide { width: 50%; }
.together { white-space: nowrap; }
.key { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: .85rem; color: var(--muted); margin: 0 0 8px; }
.key span::before {
  content: ""; display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 7px;
  vertical-align: -1px; background: var(--c);
}
.key span.cross::before { content: "\\00d7"; background: none; color: var(--c); font-weight: 700; vertical-align: 1px; }
.key span.framed::before { opacity: .55; }
.key span.dashed::before { background: none; border: 1.5px dashed var(--c); }
.figures {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 300px), 1fr)); gap: 18px;
  margin-bottom: 14px;
}
.figures.four { grid-template-columns: repeat(auto-fill, minmax(min(100%, 235px), 1fr)); }
figure { margin: 0; min-width: 0; }
figure svg { width: 100%; height: auto; display: block; }
.frames { display: grid; gap: 4px; grid-template-columns: repeat(var(--moments), minmax(116px, 1fr)); min-width: 0; }
.frames img { width: 100%; height: auto; display: block; border-radius: 4px; background: var(--line); }
.frames .time { font-size: .78rem; color: var(--muted); font-variant-numeric: tabular-nums; }
.frames .camera { grid-column: 1 / -1; font-size: .85rem; font-weight: 600; margin-top: 8px; }
.demos { display: grid; gap: 22px; }
.views { display: grid; gap: 10px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 240px), 1fr)); }
video { width: 100%; height: auto; display: block; border-radius: 6px; background: var(--line); aspect-ratio: 4 / 3; }
details { margin-top: 10px; }
summary { cursor: pointer; font-weight: 600; font-size: .92rem; padding: 6px 0; }
code { font: .88em/1.4 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
dl.pairs { display: grid; grid-template-columns: max-content 1fr; gap: 4px 18px; margin: 0; font-size: .9rem; }
dl.pairs dt { color: var(--muted); } dl.pairs dd { margin: 0; overflow-wrap: anywhere; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 380px), 1fr)); gap: 8px 36px; }
ul { margin: 0 0 12px; padding-left: 1.2em; font-size: .9rem; max-width: 80ch; }
td.source { overflow-wrap: anywhere; min-width: 8em; }
@media (max-width: 560px) {
  .page { padding: 18px 12px 48px; }
  section { padding: 16px 14px; border-radius: 10px; }
  .tiles { grid-template-columns: 1fr 1fr; gap: 10px; }
  .tile { padding: 10px 12px; } .tile .value { font-size: 1.45rem; }
  .tile .detail, .tile .label { font-size: .78rem; }
  table, tbody th { font-size: .82rem; } th, td { padding-right: 9px; }
  .frames { grid-template-columns: repeat(var(--moments), 132px); width: max-content; }
  .views { grid-template-columns: none; grid-auto-flow: column; grid-auto-columns: 82%; overflow-x: auto; }
}
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
@media print { section, .tile { break-inside: avoid; } nav { display: none; } }
"""
