#include "tools/lockstep/page_parts.h"

namespace lockstep::tool {

// Colours have a contrast of at least 3 : 1 to the ground, text one of 4.5 : 1, by day and by night.
const char kReportStyle[] = R"css(
:root { color-scheme: light dark; --ground: #ffffff; --card: #f6f7f9; --text: #1b1f24; --soft: #59616b; --line: #d5d9df;
  --c0: #0b66b7; --c1: #c84b00; --c2: #007a5a; --c3: #a83a86; --c4: #806200; --c5: #5a54d1; --c6: #4d5661;
  --input: #b35900; --compute: #0b66b7; --sync: #a83a86; --checkpoint: #007a5a; --other: #68717c; --on: #ffffff; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #12161b; --card: #1b2027; --text: #e8ebef; --soft: #a3adb9; --line: #3a424d;
    --c0: #5ab0f2; --c1: #ff9151; --c2: #37c79c; --c3: #ea93c9; --c4: #e0b528; --c5: #aaa6ff; --c6: #c3cad3;
    --input: #ff9f4d; --compute: #5ab0f2; --sync: #ea93c9; --checkpoint: #37c79c; --other: #9aa4b0; --on: #12161b; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1360px; padding: 24px 20px 48px; background: var(--ground); color: var(--text);
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 4px; }
h2 { font-size: 1.1rem; margin: 36px 0 12px; }
h3 { font-size: 1rem; margin: 18px 0 6px; }
p { margin: 4px 0; }
.soft, .note { color: var(--soft); }
.note { font-size: .85rem; }
.charts { display: grid; gap: 16px; grid-template-columns: repeat(auto-fill, minmax(min(100%, 400px), 1fr)); }
figure { margin: 0; max-width: 560px; padding: 14px 14px 8px; background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
figcaption { font-weight: 600; overflow-wrap: anywhere; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 4px 0 6px; padding: 0; font-size: .85rem; color: var(--soft); }
.legend li { overflow-wrap: anywhere; }
.legend b { color: var(--text); font-variant-numeric: tabular-nums; }
.key { width: 22px; height: 8px; margin-right: 6px; vertical-align: middle; }
.plot { position: relative; }
.chart { display: block; width: 100%; height: auto; touch-action: pan-y; border-radius: 4px; }
.grid line { stroke: var(--line); stroke-width: 1; }
.grid text { fill: var(--soft); font-size: 11.5px; }
.guide { display: none; stroke: var(--soft); stroke-width: 1; }
.guide.on { display: inline; }
.curve path { fill: none; stroke: currentColor; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
.curve .raw { stroke-width: 1; stroke-opacity: .35; }
.curve circle { fill: currentColor; }
.dash path { stroke-dasharray: 5 4; }
.c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); } .c3 { color: var(--c3); }
.c4 { color: var(--c4); } .c5 { color: var(--c5); } .c6 { color: var(--c6); }
.tip { position: absolute; z-index: 1; top: 4px; width: max-content; max-width: 75%; padding: 6px 9px; border: 1px solid var(--line); border-radius: 6px;
  background: var(--ground); color: var(--text); font-size: .82rem; pointer-events: none; box-shadow: 0 2px 8px rgb(0 0 0 / .18); }
.tip b { font-variant-numeric: tabular-nums; }
.tip i { display: inline-block; width: 9px; height: 9px; margin-right: 6px; border-radius: 50%; background: currentColor; }
.bar { display: flex; height: 26px; margin: 2px 0 10px; border-radius: 4px; overflow: hidden; background: var(--line); }
.bar div { overflow: hidden; white-space: nowrap; text-align: center; font-size: .78rem; line-height: 26px; color: var(--on); }
.swatch { display: inline-block; width: 11px; height: 11px; margin-right: 6px; border-radius: 2px; }
.input { background: var(--input); } .compute { background: var(--compute); } .sync { background: var(--sync); }
.checkpoint { background: var(--checkpoint); } .other { background: var(--other); }
.late { border-left: 4px solid var(--c1); padding: 4px 10px; background: var(--card); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 14px 4px 0; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
th { color: var(--soft); font-weight: 600; }
@media (max-width: 480px) { body { padding: 16px 10px 32px; } figure { padding: 10px 8px 6px; } }
@media print { .tip { display: none; } figure { break-inside: avoid; } }
)css";

// Shows the values at the pointer, or at the arrow keys' place, of every curve that has one there.
const char kReportScript[] = R"js(
'use strict';
const charts = JSON.parse(document.getElementById('data').textContent);
const make = name => document.createElementNS('http://www.w3.org/2000/svg', name);

function nearestTo(x, values, place) {
  let best = 0;
  for (let k = 1; k < values.length; ++k) if (Math.abs(place(values[k]) - x) < Math.abs(place(values[best]) - x)) best = k;
  return best;
}

function markAt(point, classes) {
  const mark = make('circle');
  mark.setAttribute('cx', point[2]);
  mark.setAttribute('cy', point[3]);
  mark.setAttribute('r', 3.6);
  const group = make('g');
  group.setAttribute('class', 'curve ' + classes);
  group.append(mark);
  return group;
}

function fill(tip, name, rows) {
  const head = document.createElement('div');
  head.textContent = name + ' ' + rows[0][1][0];
  tip.replaceChildren(head);
  for (const [curve, point] of rows) {
    const row = document.createElement('div');
    const dot = document.createElement('i');
    dot.className = curve.classes;
    const value = document.createElement('b');
    value.textContent = point[1];
    row.append(dot, curve.label + ' ', value);
    tip.append(row);
  }
}

function attach(svg) {
  const chart = charts[Number(svg.dataset.chart)];
  const curves = chart.curves.filter(curve => curve.points.length > 0);
  const places = [...new Set(curves.flatMap(curve => curve.points.map(point => point[2])))].sort((a, b) => a - b);
  if (places.length === 0) return;
  const guide = svg.querySelector('.guide');
  const tip = document.createElement('div');
  tip.className = 'tip';
  tip.hidden = true;
  svg.parentNode.append(tip);
  let at = -1;
  let marks = [];
  const hide = () => {
    tip.hidden = true;
    guide.classList.remove('on');
    marks.forEach(mark => mark.remove());
    marks = [];
  };
  const show = index => {
    hide();
    at = index;
    const x = places[index];
    const rows = curves.map(curve => [curve, curve.points[nearestTo(x, curve.points, point => point[2])]])
      .filter(row => Math.abs(row[1][2] - x) <= 4);
    marks = rows.map(([curve, point]) => markAt(point, curve.classes));
    svg.append(...marks);
    guide.setAttribute('x1', x);
    guide.setAttribute('x2', x);
    guide.classList.add('on');
    fill(tip, chart.x, rows);
    tip.hidden = false;
    const room = svg.parentNode.clientWidth;
    const left = x / 400 * room + (x > 218 ? -tip.offsetWidth - 12 : 12);
    tip.style.left = Math.max(0, Math.min(left, room - tip.offsetWidth)) + 'px';
  };
  const nearest = event => {
    const box = svg.getBoundingClientRect();
    return nearestTo((event.clientX - box.left) / box.width * 400, places, place => place);
  };
  for (const kind of ['pointermove', 'pointerdown']) svg.addEventListener(kind, event => show(nearest(event)));
  for (const kind of ['pointerleave', 'blur']) svg.addEventListener(kind, hide);
  svg.addEventListener('keydown', event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    show(Math.min(Math.max(at + step, 0), places.length - 1));
  });
}

document.querySelectorAll('svg.chart').forEach(attach);
)js";

}  // namespace lockstep::tool
