// A graph in a pane: its layout, its camera, and what pointers, wheels and keys do to it.

import { make } from "../../shared/elements.ts";
import { drawView, widthOf } from "./draw.ts";
import { flowOf, type Vertex } from "./flow.ts";
import { type Area, type Layout, layOut, NODE_HEIGHT, type Point } from "./layout.ts";
import type { State } from "./main.ts";
import type { Block, Delegate, Item } from "./program.ts";

export type Frame = Area & { block: Block };

type Label = { text: string; x: number; y: number; isDynamic: boolean };

interface Actions {
  choose(vertex: Vertex | null): void;
  toggle(block: Block, view: GraphView): void;
}

export type Anchor = { from: string; to: string } | null; // the keys of a vertex, before and after

const [SCALE_MIN, SCALE_MAX, FIT_MAX, PAN_STEP] = [0.03, 3, 1.15, 60];
const [FRAME_MARGIN, FRAME_HEAD] = [12, 18];

const ARROWS: Record<string, Point> = { ArrowUp: [0, 1], ArrowDown: [0, -1], ArrowLeft: [1, 0], ArrowRight: [-1, 0] };

export class GraphView {
  camera = { x: 0, y: 0, scale: 1 };
  width = 0;
  height = 0;
  layout: Layout = { boxes: new Map(), curves: [], bounds: { left: 0, right: 1, top: 0, bottom: 1 } };
  frames: Frame[] = [];
  labels: Label[] = [];
  readonly drawTimes: number[] = []; // milliseconds of the last pictures
  readonly canvas: HTMLCanvasElement;
  readonly context: CanvasRenderingContext2D;
  readonly element: HTMLElement;
  #isAwaited = false;

  constructor(
    title: string,
    readonly items: Item[],
    private state: State,
    private actions: Actions,
  ) {
    this.canvas = make("canvas", {
      tabindex: 0,
      role: "application",
      "aria-label": `${title}: arrow keys move between nodes, plus and minus zoom, Enter folds, 0 fits all`,
    });
    this.context = this.canvas.getContext("2d", { alpha: false }) as CanvasRenderingContext2D;
    this.element = make("div.pane", make("h2", title), this.canvas);
    this.listen();
    new ResizeObserver(() => this.resize()).observe(this.element);
  }

  /** Compute the layout again; the named vertex keeps its place on the screen. */
  arrange(delegate: Delegate, anchor: Anchor = null): void {
    const before = anchor && this.layout.boxes.get(anchor.from);
    const { vertices, edges } = flowOf(delegate, this.items, this.state.unfolded, this.state.withIntegers);
    this.layout = layOut(vertices, edges, widthOf);
    this.frames = framesOf(this.layout);
    this.labels = labelsOf(this.layout, delegate);
    const after = anchor && this.layout.boxes.get(anchor.to);
    if (before && after) {
      this.camera.x += (before.x - after.x) * this.camera.scale;
      this.camera.y += (before.y - after.y) * this.camera.scale;
    }
    this.draw();
  }

  draw(): void {
    if (this.#isAwaited) return;
    this.#isAwaited = true;
    requestAnimationFrame(() => {
      this.#isAwaited = false;
      if (!this.width) return;
      const began = performance.now();
      drawView(this, this.state);
      this.drawTimes.push(performance.now() - began);
      if (this.drawTimes.length > 240) this.drawTimes.shift();
    });
  }

  resize(): void {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width || !height) return;
    const isFirst = this.width === 0;
    const ratio = window.devicePixelRatio || 1;
    [this.width, this.height] = [width, height];
    [this.canvas.width, this.canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (isFirst) this.start();
    this.draw();
  }

  /** Fit the whole graph. */
  fit(): void {
    const { left, right, top, bottom } = this.layout.bounds;
    const scale = Math.min((this.width - 40) / (right - left), (this.height - 60) / (bottom - top), FIT_MAX);
    this.camera.scale = Math.max(SCALE_MIN, scale);
    this.camera.x = this.width / 2 - ((left + right) / 2) * this.camera.scale;
    this.camera.y = Math.max(40, this.height / 2 - ((top + bottom) / 2) * this.camera.scale);
    this.draw();
  }

  /** Fit the whole graph if it stays readable, else show its beginning. */
  start(): void {
    this.fit();
    if (this.camera.scale >= 0.55) return;
    const boxes = [...this.layout.boxes.values()];
    const middle = boxes.reduce((sum, box) => sum + box.x, 0) / boxes.length;
    this.camera = { scale: 0.85, x: this.width / 2 - middle * 0.85, y: 40 };
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
    const box = this.layout.boxes.get(key);
    if (!box || !this.width) return;
    const scale = Math.max(this.camera.scale, 0.8);
    this.camera = { scale, x: this.width / 2 - box.x * scale, y: this.height / 2 - (box.y + box.height / 2) * scale };
    this.draw();
  }

  /** The vertex of a node, or of its folded block. */
  vertexOfNode(node: number): Vertex | null {
    for (const box of this.layout.boxes.values()) {
      if (box.vertex.items.some((item) => item.nodes.includes(node))) return box.vertex;
    }
    return null;
  }

  /** Where the middle of a vertex is on the canvas. */
  toScreen(key: string): Point | null {
    const box = this.layout.boxes.get(key);
    if (!box) return null;
    return [box.x * this.camera.scale + this.camera.x, (box.y + box.height / 2) * this.camera.scale + this.camera.y];
  }

  at(x: number, y: number): { vertex?: Vertex; frame?: Frame } {
    const [graphX, graphY] = [(x - this.camera.x) / this.camera.scale, (y - this.camera.y) / this.camera.scale];
    for (const box of this.layout.boxes.values()) {
      if (Math.abs(graphX - box.x) <= box.width / 2 && graphY >= box.y && graphY <= box.y + box.height)
        return { vertex: box.vertex };
    }
    const frame = this.frames.find(
      (each) => graphX >= each.left && graphX <= each.right && graphY >= each.top && graphY <= each.top + FRAME_HEAD,
    );
    return frame ? { frame } : {};
  }

  listen(): void {
    const pointers = new Map<number, Point>();
    let moved = 0;
    const place = (event: MouseEvent): Point => [event.offsetX, event.offsetY];
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, place(event));
      moved = 0;
      this.canvas.classList.add("dragging");
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) return;
      const now = place(event);
      moved += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
      const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
      if (other) {
        // A pinch: two fingers zoom about the one that rests.
        const distance = ([x, y]: Point) => Math.hypot(x - other[0], y - other[1]);
        this.zoom(distance(now) / Math.max(1, distance(before)), ...other);
      } else {
        this.pan(now[0] - before[0], now[1] - before[1]);
      }
      pointers.set(event.pointerId, now);
    });
    const end = (event: PointerEvent) => {
      pointers.delete(event.pointerId);
      this.canvas.classList.remove("dragging");
      if (event.type === "pointerup" && moved < 5) this.press(...place(event));
    };
    this.canvas.addEventListener("pointerup", end);
    this.canvas.addEventListener("pointercancel", end);
    this.canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        const lines = event.deltaMode === 1 ? 16 : 1;
        this.zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0016)), ...place(event));
      },
      { passive: false },
    );
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  press(x: number, y: number): void {
    const { vertex, frame } = this.at(x, y);
    if (vertex?.kind === "block" && vertex.block) this.actions.toggle(vertex.block, this);
    else if (frame) this.actions.toggle(frame.block, this);
    else this.actions.choose(vertex ?? null);
  }

  key(event: KeyboardEvent): void {
    const arrow = ARROWS[event.key];
    if (arrow) {
      const next = event.shiftKey ? null : this.neighbour(event.key);
      if (next) {
        this.actions.choose(next);
        this.show(next.key);
      } else {
        this.pan(arrow[0] * PAN_STEP, arrow[1] * PAN_STEP);
      }
    } else if (event.key === "+" || event.key === "=") this.zoom(1.25);
    else if (event.key === "-") this.zoom(0.8);
    else if (event.key === "0") this.fit();
    else if (event.key === "Escape") this.actions.choose(null);
    else if (event.key === "Enter") {
      const vertex = this.layout.boxes.get(this.state.chosen ?? "")?.vertex;
      if (vertex?.block) this.actions.toggle(vertex.block, this);
    } else return;
    event.preventDefault();
  }

  /** The vertex that an arrow key leads to from the one chosen: what it reads from, what reads it, or beside. */
  neighbour(key: string): Vertex | null {
    const box = this.layout.boxes.get(this.state.chosen ?? "");
    const boxes = [...this.layout.boxes.values()];
    if (!box) return boxes[0]?.vertex ?? null;
    const { curves } = this.layout;
    let keys: string[];
    if (key === "ArrowUp") keys = curves.filter((curve) => curve.to === box.vertex.key).map((curve) => curve.from);
    else if (key === "ArrowDown")
      keys = curves.filter((curve) => curve.from === box.vertex.key).map((curve) => curve.to);
    else {
      const side = key === "ArrowRight" ? 1 : -1;
      const beside = boxes.filter((other) => other.y === box.y && (other.x - box.x) * side > 0);
      beside.sort((a, b) => Math.abs(a.x - box.x) - Math.abs(b.x - box.x));
      keys = beside.slice(0, 1).map((other) => other.vertex.key);
    }
    return this.layout.boxes.get(keys[0])?.vertex ?? null;
  }
}

/** A frame around the nodes of each block that is unfolded. */
function framesOf(layout: Layout): Frame[] {
  const frames = new Map<string, Frame>();
  for (const { vertex, x, y, width, height } of layout.boxes.values()) {
    if (vertex.kind !== "node" || !vertex.block) continue;
    const { block } = vertex;
    const frame = frames.get(block.key) ?? {
      block,
      left: Infinity,
      right: -Infinity,
      top: Infinity,
      bottom: -Infinity,
    };
    frame.left = Math.min(frame.left, x - width / 2 - FRAME_MARGIN);
    frame.right = Math.max(frame.right, x + width / 2 + FRAME_MARGIN);
    frame.top = Math.min(frame.top, y - FRAME_HEAD - 4);
    frame.bottom = Math.max(frame.bottom, y + height + FRAME_MARGIN);
    frames.set(block.key, frame);
  }
  return [...frames.values()];
}

function labelsOf(layout: Layout, delegate: Delegate): Label[] {
  const labels = new Map<string, Label>();
  for (const { from, value, points } of layout.curves) {
    const [[x, y], [toX]] = points;
    const text = delegate.type(value);
    const label = { text, x: x + (toX - x) * 0.2 + 5, y: y + NODE_HEIGHT + 13, isDynamic: text.includes("≤") };
    if (!labels.has(`${from} ${value}`)) labels.set(`${from} ${value}`, label);
  }
  return spread([...labels.values()]);
}

/** Labels that would cover one another go below. */
function spread(labels: Label[]): Label[] {
  const rows = new Map<number, Label[]>();
  for (const label of labels) {
    const near = rows.get(label.y) ?? [];
    const level = near.filter((other) => Math.abs(other.x - label.x) < 110).length;
    near.push({ ...label });
    rows.set(label.y, near);
    label.y += Math.min(level, 2) * 12;
  }
  return labels;
}
