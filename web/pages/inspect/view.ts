// A graph in a pane: its layout, its camera, and what pointers, wheels and keys do to it.

import { html, render } from "lit-html";
import { sum } from "../../shared/sums.ts";
import { drawView, widthOf } from "./draw.ts";
import { flowOf, type Vertex } from "./flow.ts";
import { type Area, around, type Layout, layOut, NODE_HEIGHT } from "./layout.ts";
import type { Page } from "./main.ts";
import type { Block, Delegate, Item } from "./program.ts";

export type Frame = Area & { block: Block };

type Point = [x: number, y: number];

const [SCALE_MIN, SCALE_MAX, FIT_MAX, PAN_STEP] = [0.03, 3, 1.15, 60];
const [FRAME_MARGIN, FRAME_HEAD] = [12, 18];
const ARROWS: Record<string, Point | undefined> = {
  ...{ ArrowUp: [0, PAN_STEP], ArrowDown: [0, -PAN_STEP], ArrowLeft: [PAN_STEP, 0], ArrowRight: [-PAN_STEP, 0] },
};
const KEYS = "arrow keys move between nodes, plus and minus zoom, Enter folds, 0 fits all";

export class GraphView {
  camera = { x: 0, y: 0, scale: 1 };
  width = 0;
  height = 0;
  layout = layOut([], [], widthOf);
  frames: Frame[] = [];
  labels: ReturnType<typeof labelsOf> = [];
  readonly drawTimes: number[] = []; // milliseconds of the last pictures
  readonly element = document.createElement("div");
  readonly canvas: HTMLCanvasElement;
  readonly context: CanvasRenderingContext2D;
  #isAwaited = false;

  constructor(
    title: string,
    readonly items: Item[],
    private page: Page,
  ) {
    const pointers = new Map<number, Point>();
    let moved = 0;
    const place = (event: MouseEvent): Point => [event.offsetX, event.offsetY];
    const down = (event: PointerEvent) => {
      this.canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, place(event));
      moved = 0;
      this.canvas.classList.add("dragging");
    };
    const move = (event: PointerEvent) => {
      const before = pointers.get(event.pointerId);
      if (!before) return;
      const now = place(event);
      moved += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
      pointers.set(event.pointerId, now);
      const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
      if (!other) return this.pan(now[0] - before[0], now[1] - before[1]);
      // A pinch: two fingers zoom about the one that rests.
      const distance = ([x, y]: Point) => Math.hypot(x - other[0], y - other[1]);
      this.zoom(distance(now) / Math.max(1, distance(before)), ...other);
    };
    const end = (event: PointerEvent) => {
      pointers.delete(event.pointerId);
      this.canvas.classList.remove("dragging");
      if (event.type === "pointerup" && moved < 5) this.press(...place(event));
    };
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 16 : 1;
      this.zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0016)), ...place(event));
    };
    const key = (event: KeyboardEvent) => this.key(event.key, event.shiftKey) && event.preventDefault();
    const pane = html`
      <h2>${title}</h2>
      <canvas tabindex="0" role="application" aria-label=${`${title}: ${KEYS}`} @pointerdown=${down}
        @pointermove=${move} @pointerup=${end} @pointercancel=${end} @wheel=${wheel} @keydown=${key}></canvas>`;
    render(pane, this.element);
    this.element.className = "pane";
    this.canvas = this.element.querySelector("canvas") as HTMLCanvasElement;
    this.context = this.canvas.getContext("2d", { alpha: false }) as CanvasRenderingContext2D;
    new ResizeObserver(() => this.resize()).observe(this.element);
  }

  /** Compute the layout again; a vertex, by its keys before and after, keeps its place on the screen. */
  arrange(delegate: Delegate, from = "", to = ""): void {
    const { unfolded, withIntegers } = this.page.state;
    const before = this.layout.boxes.get(from);
    const { vertices, edges } = flowOf(delegate, this.items, unfolded, withIntegers);
    this.layout = layOut(vertices, edges, widthOf);
    this.frames = framesOf(this.layout);
    this.labels = labelsOf(this.layout, delegate);
    const after = this.layout.boxes.get(to);
    if (!before || !after) return this.draw();
    this.pan((before.x - after.x) * this.camera.scale, (before.y - after.y) * this.camera.scale);
  }

  draw(): void {
    if (this.#isAwaited) return;
    this.#isAwaited = true;
    requestAnimationFrame(() => {
      this.#isAwaited = false;
      if (!this.width) return;
      const began = performance.now();
      drawView(this, this.page.state);
      this.drawTimes.push(performance.now() - began);
      if (this.drawTimes.length > 240) this.drawTimes.shift();
    });
  }

  resize(): void {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width || !height) return;
    const isFirst = this.width === 0;
    const ratio = window.devicePixelRatio || 1;
    Object.assign(this, { width, height });
    Object.assign(this.canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    if (isFirst) this.start();
    this.draw();
  }

  /** Bring a point of the graph to the middle, or a y of the screen. */
  #centre(scale: number, x: number, y: number, atY = this.height / 2 - y * scale): void {
    this.camera = { scale, x: this.width / 2 - x * scale, y: atY };
    this.draw();
  }

  /** Fit the whole graph. */
  fit(): void {
    const { left, right, top, bottom } = this.layout.bounds;
    const room = Math.min((this.width - 40) / (right - left), (this.height - 60) / (bottom - top), FIT_MAX);
    this.#centre(Math.max(SCALE_MIN, room), (left + right) / 2, (top + bottom) / 2);
    this.camera.y = Math.max(40, this.camera.y);
  }

  /** Fit the whole graph if it stays readable, else show its beginning. */
  start(): void {
    this.fit();
    if (this.camera.scale >= 0.55) return;
    const { boxes } = this.layout;
    this.#centre(0.85, sum(boxes.values(), (box) => box.x) / boxes.size, 0, 40);
  }

  zoom(factor: number, x = this.width / 2, y = this.height / 2): void {
    const scale = Math.min(SCALE_MAX, Math.max(SCALE_MIN, this.camera.scale * factor));
    const ratio = scale / this.camera.scale;
    this.camera = { scale, x: x - (x - this.camera.x) * ratio, y: y - (y - this.camera.y) * ratio };
    this.draw();
  }

  pan(x: number, y: number): void {
    this.camera.x += x;
    this.camera.y += y;
    this.draw();
  }

  /** Bring a vertex to the middle, at a scale at which it can be read. */
  show(key: string): void {
    if (!this.width) this.resize(); // it has just been made
    const box = this.layout.boxes.get(key);
    if (box && this.width) this.#centre(Math.max(this.camera.scale, 0.8), box.x, box.y + NODE_HEIGHT / 2);
  }

  /** The vertex of a node, or of its folded block. */
  vertexOfNode(node: number): Vertex | undefined {
    const boxes = [...this.layout.boxes.values()];
    return boxes.find(({ vertex }) => vertex.items.some((item) => item.nodes.includes(node)))?.vertex;
  }

  /** Where the middle of a vertex is on the canvas. */
  toScreen(key: string): Point | null {
    const box = this.layout.boxes.get(key);
    const { x, y, scale } = this.camera;
    return box ? [box.x * scale + x, (box.y + NODE_HEIGHT / 2) * scale + y] : null;
  }

  press(screenX: number, screenY: number): void {
    const [x, y] = [(screenX - this.camera.x) / this.camera.scale, (screenY - this.camera.y) / this.camera.scale];
    const isIn = ({ left, right, top, bottom }: Area) => left <= x && x <= right && top <= y && y <= bottom;
    const vertex = [...this.layout.boxes.values()].find((box) => isIn(box.area))?.vertex;
    const frame = this.frames.find((each) => isIn({ ...each, bottom: each.top + FRAME_HEAD }));
    if (vertex?.kind === "block" && vertex.block) this.page.toggle(vertex.block, this);
    else if (!vertex && frame) this.page.toggle(frame.block, this);
    else this.page.chooseVertex(vertex);
  }

  /** What a key does; false if nothing. */
  key(key: string, isShift: boolean): boolean {
    const { page, layout } = this;
    const arrow = ARROWS[key];
    const block = layout.boxes.get(page.state.chosen ?? "")?.vertex.block;
    const next = arrow && !isShift && this.neighbour(key);
    if (next) {
      page.chooseVertex(next);
      this.show(next.key);
    } else if (arrow) this.pan(...arrow);
    else if (key === "+" || key === "=") this.zoom(1.25);
    else if (key === "-") this.zoom(0.8);
    else if (key === "0") this.fit();
    else if (key === "Escape") page.chooseVertex();
    else if (key !== "Enter") return false;
    else if (block) page.toggle(block, this);
    return true;
  }

  /** The vertex that an arrow key leads to from the one chosen: what it reads from, what reads it, or beside. */
  neighbour(key: string): Vertex | undefined {
    const { boxes, curves } = this.layout;
    const { chosen } = this.page.state;
    const box = boxes.get(chosen ?? "");
    if (!box) return boxes.values().next().value?.vertex;
    if (key === "ArrowUp") return boxes.get(curves.find((curve) => curve.to === chosen)?.from ?? "")?.vertex;
    if (key === "ArrowDown") return boxes.get(curves.find((curve) => curve.from === chosen)?.to ?? "")?.vertex;
    const distance = (other: { x: number }) => (other.x - box.x) * (key === "ArrowRight" ? 1 : -1);
    const beside = [...boxes.values()].filter((other) => other.y === box.y && distance(other) > 0);
    return beside.sort((a, b) => distance(a) - distance(b))[0]?.vertex;
  }
}

/** A frame around the nodes of each block that is unfolded. */
function framesOf({ boxes }: Layout): Frame[] {
  const nodes = [...boxes.values()].filter(({ vertex }) => vertex.kind === "node");
  return [...Map.groupBy(nodes, ({ vertex }) => vertex.block)].flatMap(([block, inside]) => {
    if (!block) return [];
    const area = around(
      inside.map((box) => box.area),
      FRAME_MARGIN,
    );
    return { ...area, top: area.top + FRAME_MARGIN - FRAME_HEAD - 4, block };
  });
}

/** A label per value, beside where it leaves its vertex; those that would cover one another go below. */
function labelsOf({ curves }: Layout, delegate: Delegate) {
  const labels: { text: string; x: number; y: number; row: number }[] = [];
  for (const [{ value, cells }] of Map.groupBy(curves, (curve) => `${curve.from} ${curve.value}`).values()) {
    const [from, to] = cells;
    const [x, row] = [from.x + (to.x - from.x) * 0.2 + 5, from.y + NODE_HEIGHT + 13];
    const level = labels.filter((other) => other.row === row && Math.abs(other.x - x) < 110).length;
    labels.push({ text: delegate.type(value), x, y: row + Math.min(level, 2) * 12, row });
  }
  return labels;
}
