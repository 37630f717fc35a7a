// A layout, a camera and what is chosen -> a picture on a canvas. Only what is in sight is drawn.

import { shortened } from "../../shared/text.ts";
import type { Vertex } from "./flow.ts";
import { type Area, type Box, type Cell, NODE_HEIGHT } from "./layout.ts";
import type { State } from "./main.ts";
import { DELEGATES } from "./program.ts";
import type { Frame, GraphView } from "./view.ts";

type Pen = CanvasRenderingContext2D;

const TITLE_FONT = '600 12.5px system-ui, "Segoe UI", "Liberation Sans", Arial, sans-serif';
const SMALL_FONT = '11px system-ui, "Segoe UI", "Liberation Sans", Arial, sans-serif';
const [TEXT_SCALE, LABEL_SCALE] = [0.42, 0.62]; // below these, text would be specks
const FILL_SCALE = 0.2; // below this, a box is a speck of its colour
const [WIDTH_MIN, WIDTH_MAX] = [86, 280];

const measure = document.createElement("canvas").getContext("2d") as Pen;
const colours: Record<string, string> = {}; // read from the style sheet, whenever the theme changes

/** Canvases need colours as they are computed, without variables. */
export function readColours(): void {
  const probe = document.body.appendChild(document.createElement("i"));
  const families = DELEGATES.flatMap(({ record }) => record.operators.map((operator) => operator.family));
  const names = [...new Set(["block", "border", ...families])].map((family) => `family-${family}`);
  for (const name of [...names, "ground", "paper", "ink", "quiet", "line", "edge", "accent", "mark", "node"]) {
    probe.style.color = `var(--${name}, var(--family-unknown))`;
    colours[name] = getComputedStyle(probe).color;
  }
  probe.remove();
}

export function widthOf(vertex: Vertex): number {
  const wide = (text: string, font: string) => Object.assign(measure, { font }).measureText(text).width + 30;
  const width = Math.ceil(Math.max(wide(vertex.title, TITLE_FONT), wide(vertex.subtitle, SMALL_FONT)));
  return Math.min(WIDTH_MAX, Math.max(WIDTH_MIN, width));
}

/** Draw a view: `view` has layout, camera and canvas, `state` says what is chosen. */
export function drawView(view: GraphView, state: State): void {
  const { context: pen, width, height } = view;
  const { x, y, scale } = view.camera;
  const ratio = window.devicePixelRatio || 1;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = colours.ground;
  pen.fillRect(0, 0, width, height);
  pen.setTransform(ratio * scale, 0, 0, ratio * scale, ratio * x, ratio * y);
  const sight = { left: -x / scale, top: -y / scale, right: (width - x) / scale, bottom: (height - y) / scale };
  for (const frame of view.frames) if (isSeen(frame, sight)) drawFrame(pen, frame, scale);
  drawEdges(pen, view, state, sight);
  for (const box of view.layout.boxes.values()) if (isSeen(box.area, sight)) drawBox(pen, box, state, scale);
  if (scale >= LABEL_SCALE) drawLabels(pen, view, sight);
}

function isSeen(area: Area, sight: Area): boolean {
  return area.right >= sight.left && area.left <= sight.right && area.bottom >= sight.top && area.top <= sight.bottom;
}

/** A rounded area, filled, with an outline, or both. */
function shape(pen: Pen, area: Area, radius: number | number[], fill: string, stroke = "", width = 1): void {
  pen.beginPath();
  pen.roundRect(area.left, area.top, area.right - area.left, area.bottom - area.top, radius);
  pen.lineWidth = width;
  pen.fillStyle = fill;
  pen.strokeStyle = stroke;
  if (fill) pen.fill();
  if (stroke) pen.stroke();
}

function drawFrame(pen: Pen, frame: Frame, scale: number): void {
  shape(pen, frame, 10, colours.paper, colours.line, 1 / Math.min(1, scale));
  if (scale < TEXT_SCALE) return;
  Object.assign(pen, { font: SMALL_FONT, fillStyle: colours.accent, textAlign: "left" });
  pen.fillText(`▾ ${frame.block.title}`, frame.left + 10, frame.top + 14);
}

/** A smooth line through the cells of a route, from the foot of one box to the head of another; of a long one,
    the part that is in sight. */
function tracePath(pen: Pen, cells: Cell[], sight: Area): void {
  let isDrawn = false;
  for (let index = 1; index < cells.length && cells[index - 1].y + NODE_HEIGHT < sight.bottom; index++) {
    const { x: toX, y: toY } = cells[index];
    if (toY + NODE_HEIGHT <= sight.top) continue;
    const [x, y] = [cells[index - 1].x, cells[index - 1].y + NODE_HEIGHT];
    if (!isDrawn) pen.moveTo(x, y);
    isDrawn = true;
    const middle = (y + toY) / 2;
    pen.bezierCurveTo(x, middle, toX, middle, toX, toY);
    if (index < cells.length - 1) pen.lineTo(toX, toY + NODE_HEIGHT); // past the boxes of a rank
  }
}

function drawEdges(pen: Pen, view: GraphView, { chosen }: State, sight: Area): void {
  const seen = view.layout.curves.filter((curve) => isSeen(curve.area, sight));
  for (const isStrong of [false, true]) {
    pen.beginPath();
    for (const { from, to, cells } of seen) {
      if ((from === chosen || to === chosen) === isStrong) tracePath(pen, cells, sight);
    }
    pen.strokeStyle = isStrong ? colours.accent : colours.edge;
    pen.lineWidth = (isStrong ? 2.2 : 1.2) / Math.max(0.5, Math.min(1, view.camera.scale));
    pen.stroke();
  }
}

function drawBox(pen: Pen, { vertex, area }: Box, state: State, scale: number): void {
  const { kind, items } = vertex;
  const families =
    kind === "block" ? items.map((item) => state.delegate?.operator(item).family ?? "") : [vertex.family];
  const isMarked = state.marked.size > 0 && items.some((item) => item.nodes.some((node) => state.marked.has(node)));
  const isFaded = families.every((family) => state.faded.has(family)) || (state.marked.size > 0 && !isMarked);
  const colour = colours[`family-${vertex.family}`];
  const radius = kind === "border" ? NODE_HEIGHT / 2 : 7;
  pen.globalAlpha = isFaded ? 0.28 : 1;
  const pile = kind === "block" ? [6, 3] : []; // sheets below a block
  for (const offset of pile) shape(pen, moved(area, offset), radius, colours.node, colours.line);
  const fill = scale < FILL_SCALE && kind === "node" ? colour : colours.node;
  shape(pen, area, radius, fill, isMarked ? colours.mark : colour, isMarked ? 2.5 : 1.2);
  if (kind === "node") shape(pen, { ...area, right: area.left + 7 }, [radius, 0, 0, radius], colour);
  if (vertex.key === state.chosen) shape(pen, moved(area, -4, 4), radius + 4, "", colours.accent, 2);
  if (scale >= TEXT_SCALE) drawText(pen, area, vertex);
  pen.globalAlpha = 1;
}

/** An area whose corners are moved, down and to the right. */
function moved({ left, top, right, bottom }: Area, first: number, second = first): Area {
  return { left: left + first, top: top + first, right: right + second, bottom: bottom + second };
}

function drawText(pen: Pen, { left, right, top }: Area, { kind, title, subtitle }: Vertex): void {
  const centre = (left + right) / 2 + (kind === "node" ? 3 : 0);
  Object.assign(pen, { font: TITLE_FONT, fillStyle: colours.ink, textAlign: "center" });
  pen.fillText(shortened(pen, title, right - left - 24), centre, top + 17);
  Object.assign(pen, { font: SMALL_FONT, fillStyle: colours.quiet });
  pen.fillText(shortened(pen, kind === "block" ? `▸ ${subtitle}` : subtitle, right - left - 20), centre, top + 32);
}

/** The type of each value, once, beside the line on which it leaves its box. */
function drawLabels(pen: Pen, view: GraphView, sight: Area): void {
  const style = { font: SMALL_FONT, textAlign: "left", strokeStyle: colours.ground, lineWidth: 3, lineJoin: "round" };
  Object.assign(pen, style);
  for (const { text, x, y } of view.labels) {
    if (!isSeen({ left: x, right: x + WIDTH_MAX, top: y - 10, bottom: y + 4 }, sight)) continue;
    pen.strokeText(text, x, y); // so that lines behind it do not strike it out
    pen.fillStyle = text.includes("≤") ? colours.mark : colours.quiet;
    pen.fillText(text, x, y);
  }
}
