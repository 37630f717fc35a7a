// A layout, a camera and what is chosen -> a picture on a canvas. Only what is in sight is drawn.

import type { Vertex } from "./flow.ts";
import { type Area, type Box, type Curve, NODE_HEIGHT, type Point } from "./layout.ts";
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
  const read = (name: string, otherwise = "") => {
    probe.style.color = `var(--${name}, ${otherwise})`;
    colours[name] = getComputedStyle(probe).color;
  };
  const families = new Set(
    DELEGATES.flatMap((delegate) => delegate.record.operators.map((operator) => operator.family)),
  );
  for (const name of ["ground", "paper", "ink", "quiet", "line", "edge", "accent", "mark", "node"]) read(name);
  for (const family of [...families, "block", "border", "unknown"]) read(`family-${family}`, "var(--family-unknown)");
  probe.remove();
}

export function widthOf(vertex: Vertex): number {
  measure.font = TITLE_FONT;
  const title = measure.measureText(vertex.title).width;
  measure.font = SMALL_FONT;
  const wide = Math.max(title, measure.measureText(vertex.subtitle).width) + 30;
  return Math.min(WIDTH_MAX, Math.max(WIDTH_MIN, Math.ceil(wide)));
}

/** Draw a view: `view` has layout, camera and canvas, `state` says what is chosen. */
export function drawView(view: GraphView, state: State): void {
  const { context: pen, camera, layout } = view;
  const ratio = window.devicePixelRatio || 1;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = colours.ground;
  pen.fillRect(0, 0, view.width, view.height);
  pen.setTransform(ratio * camera.scale, 0, 0, ratio * camera.scale, ratio * camera.x, ratio * camera.y);
  const sight = {
    left: -camera.x / camera.scale,
    top: -camera.y / camera.scale,
    right: (view.width - camera.x) / camera.scale,
    bottom: (view.height - camera.y) / camera.scale,
  };
  for (const frame of view.frames) if (isSeen(frame, sight)) drawFrame(pen, frame, camera.scale);
  drawEdges(pen, view, state, sight);
  for (const box of layout.boxes.values()) {
    const x = box.x - box.width / 2;
    if (isSeen({ left: x, right: x + box.width, top: box.y, bottom: box.y + box.height }, sight))
      drawBox(pen, box, x, state, camera.scale);
  }
  if (camera.scale >= LABEL_SCALE) drawLabels(pen, view, sight);
}

function isSeen(area: Area, sight: Area): boolean {
  return area.right >= sight.left && area.left <= sight.right && area.bottom >= sight.top && area.top <= sight.bottom;
}

function drawFrame(pen: Pen, frame: Frame, scale: number): void {
  pen.lineWidth = 1 / Math.min(1, scale);
  pen.strokeStyle = colours.line;
  pen.fillStyle = colours.paper;
  pen.beginPath();
  pen.roundRect(frame.left, frame.top, frame.right - frame.left, frame.bottom - frame.top, 10);
  pen.fill();
  pen.stroke();
  if (scale < TEXT_SCALE) return;
  pen.font = SMALL_FONT;
  pen.fillStyle = colours.accent;
  pen.textAlign = "left";
  pen.fillText(`▾ ${frame.block.title}`, frame.left + 10, frame.top + 14);
}

/** A smooth line through the points of a route, from the foot of one box to the head of another; of a long one,
    the part that is in sight. */
function tracePath(pen: Pen, points: Point[], sight: Area): void {
  let [x, y] = points[0];
  y += NODE_HEIGHT;
  let isDrawn = false;
  for (let index = 1; index < points.length && y < sight.bottom; index++) {
    const [toX, toY] = points[index];
    if (toY + NODE_HEIGHT > sight.top) {
      if (!isDrawn) pen.moveTo(x, y);
      isDrawn = true;
      const middle = (y + toY) / 2;
      pen.bezierCurveTo(x, middle, toX, middle, toX, toY);
      if (index < points.length - 1) pen.lineTo(toX, toY + NODE_HEIGHT); // past the boxes of a rank
    }
    [x, y] = [toX, toY + NODE_HEIGHT];
  }
}

function drawEdges(pen: Pen, view: GraphView, state: State, sight: Area): void {
  const plain: Curve[] = [];
  const strong: Curve[] = [];
  for (const curve of view.layout.curves) {
    if (!isSeen(curve.area, sight)) continue;
    const touches = state.chosen !== null && (curve.from === state.chosen || curve.to === state.chosen);
    (touches ? strong : plain).push(curve);
  }
  for (const [curves, colour, width] of [
    [plain, colours.edge, 1.2],
    [strong, colours.accent, 2.2],
  ] as const) {
    pen.beginPath();
    for (const curve of curves) tracePath(pen, curve.points, sight);
    pen.strokeStyle = colour;
    pen.lineWidth = width / Math.max(0.5, Math.min(1, view.camera.scale));
    pen.stroke();
  }
}

function isMarked(vertex: Vertex, marked: Set<number>): boolean {
  return vertex.items.some((item) => item.nodes.some((node) => marked.has(node)));
}

function drawBox(pen: Pen, box: Box, x: number, state: State, scale: number): void {
  const { vertex } = box;
  const families =
    vertex.kind === "block" ? vertex.items.map((item) => state.delegate?.operator(item).family ?? "") : [vertex.family];
  const marked = state.marked.size > 0 && isMarked(vertex, state.marked);
  const isFaded = families.every((family) => state.faded.has(family)) || (state.marked.size > 0 && !marked);
  pen.globalAlpha = isFaded ? 0.28 : 1;
  const colour = colours[`family-${vertex.family}`];
  const radius = vertex.kind === "border" ? box.height / 2 : 7;
  if (vertex.kind === "block") {
    // sheets on a pile
    for (const offset of [6, 3]) outline(pen, x + offset, box.y + offset, box, radius, colours.node, colours.line, 1);
  }
  const fill = scale < FILL_SCALE && vertex.kind === "node" ? colour : colours.node;
  outline(pen, x, box.y, box, radius, fill, marked ? colours.mark : colour, marked ? 2.5 : 1.2);
  if (vertex.kind === "node") {
    pen.fillStyle = colour;
    pen.beginPath();
    pen.roundRect(x, box.y, 7, box.height, [radius, 0, 0, radius]);
    pen.fill();
  }
  if (vertex.key === state.chosen) {
    pen.lineWidth = 2;
    pen.strokeStyle = colours.accent;
    pen.beginPath();
    pen.roundRect(x - 4, box.y - 4, box.width + 8, box.height + 8, radius + 4);
    pen.stroke();
  }
  if (scale >= TEXT_SCALE) drawText(pen, box, x, vertex);
  pen.globalAlpha = 1;
}

function outline(
  pen: Pen,
  x: number,
  y: number,
  box: Box,
  radius: number,
  fill: string,
  stroke: string,
  width: number,
): void {
  pen.beginPath();
  pen.roundRect(x, y, box.width, box.height, radius);
  pen.fillStyle = fill;
  pen.fill();
  pen.lineWidth = width;
  pen.strokeStyle = stroke;
  pen.stroke();
}

function drawText(pen: Pen, box: Box, x: number, vertex: Vertex): void {
  const centre = x + box.width / 2 + (vertex.kind === "node" ? 3 : 0);
  pen.textAlign = "center";
  pen.font = TITLE_FONT;
  pen.fillStyle = colours.ink;
  pen.fillText(shortened(pen, vertex.title, box.width - 24), centre, box.y + 17);
  pen.font = SMALL_FONT;
  pen.fillStyle = colours.quiet;
  pen.fillText(
    shortened(pen, vertex.kind === "block" ? `▸ ${vertex.subtitle}` : vertex.subtitle, box.width - 20),
    centre,
    box.y + 32,
  );
}

function shortened(pen: Pen, text: string, width: number): string {
  if (pen.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && pen.measureText(`${text.slice(0, end)}…`).width > width) end--;
  return `${text.slice(0, end)}…`;
}

/** The type of each value, once, beside the line on which it leaves its box. */
function drawLabels(pen: Pen, view: GraphView, sight: Area): void {
  pen.font = SMALL_FONT;
  pen.textAlign = "left";
  pen.strokeStyle = colours.ground;
  pen.lineWidth = 3;
  pen.lineJoin = "round";
  for (const label of view.labels) {
    if (!isSeen({ left: label.x, right: label.x + WIDTH_MAX, top: label.y - 10, bottom: label.y + 4 }, sight)) continue;
    pen.strokeText(label.text, label.x, label.y); // so that lines behind it do not strike it out
    pen.fillStyle = label.isDynamic ? colours.mark : colours.quiet;
    pen.fillText(label.text, label.x, label.y);
  }
}
