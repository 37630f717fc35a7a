// A graph in a pane: its layout, its camera, and what pointers, wheels and keys do to it.
"use strict";

const SCALE_MIN = 0.03, SCALE_MAX = 3, FIT_MAX = 1.15, PAN_STEP = 60;

class GraphView {
  constructor(title, items, state, actions) {
    this.title = title;
    this.items = items;
    this.state = state;
    this.actions = actions; // choose(vertex), toggle(block), say(text)
    this.camera = { x: 0, y: 0, scale: 1 };
    this.width = this.height = 0;
    this.drawTimes = []; // milliseconds of the last pictures
    this.canvas = make("canvas", {
      tabindex: 0, role: "application",
      "aria-label": `${title}: arrow keys move between nodes, plus and minus zoom, Enter folds, 0 fits all`,
    });
    this.context = this.canvas.getContext("2d", { alpha: false });
    this.element = make("div", { class: "pane" }, make("h2", {}, title), this.canvas);
    this.listen();
    new ResizeObserver(() => this.resize()).observe(this.element);
  }

  /** Compute the layout again; the named vertex keeps its place on the screen. */
  arrange(anchor = null) {
    const before = anchor && this.layout?.boxes.get(anchor.from);
    const { vertices, edges } = flowOf(this.state.delegate, this.items, this.state.unfolded, this.state.withIntegers);
    this.layout = layOut(vertices, edges, widthOf);
    this.frames = framesOf(this.layout, this.state.delegate);
    this.labels = labelsOf(this.layout, this.state.delegate);
    for (const curve of this.layout.curves) curve.area = areaOf(curve.points);
    const after = anchor && this.layout.boxes.get(anchor.to);
    if (before && after) {
      this.camera.x += (before.x - after.x) * this.camera.scale;
      this.camera.y += (before.y - after.y) * this.camera.scale;
    }
    this.draw();
  }

  draw() {
    if (this.isAwaited) return;
    this.isAwaited = true;
    requestAnimationFrame(() => {
      this.isAwaited = false;
      if (!this.width || !this.layout) return;
      const began = performance.now();
      drawView(this, this.state);
      this.drawTimes.push(performance.now() - began);
      if (this.drawTimes.length > 240) this.drawTimes.shift();
    });
  }

  resize() {
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
  fit() {
    const { left, right, top, bottom } = this.layout.bounds;
    const scale = Math.min((this.width - 40) / (right - left), (this.height - 60) / (bottom - top), FIT_MAX);
    this.camera.scale = Math.max(SCALE_MIN, scale);
    this.camera.x = this.width / 2 - ((left + right) / 2) * this.camera.scale;
    this.camera.y = Math.max(40, this.height / 2 - ((top + bottom) / 2) * this.camera.scale);
    this.draw();
  }

  /** Fit the whole graph if it stays readable, else show its beginning. */
  start() {
    this.fit();
    if (this.camera.scale >= 0.55) return;
    const boxes = [...this.layout.boxes.values()];
    const middle = boxes.reduce((sum, box) => sum + box.x, 0) / boxes.length;
    this.camera = { scale: 0.85, x: this.width / 2 - middle * 0.85, y: 40 };
  }

  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const scale = Math.min(SCALE_MAX, Math.max(SCALE_MIN, this.camera.scale * factor));
    const ratio = scale / this.camera.scale;
    this.camera = { scale, x: x - (x - this.camera.x) * ratio, y: y - (y - this.camera.y) * ratio };
    this.draw();
  }

  pan(x, y) {
    this.camera.x += x;
    this.camera.y += y;
    this.draw();
  }

  /** Bring a vertex to the middle, at a scale at which it can be read. */
  show(key) {
    const box = this.layout.boxes.get(key);
    if (!box || !this.width) return;
    const scale = Math.max(this.camera.scale, 0.8);
    this.camera = { scale, x: this.width / 2 - box.x * scale, y: this.height / 2 - (box.y + box.height / 2) * scale };
    this.draw();
  }

  /** The vertex of a node, or of its folded block. */
  vertexOfNode(node) {
    for (const box of this.layout.boxes.values()) {
      if (box.vertex.items.some((item) => item.nodes.includes(node))) return box.vertex;
    }
    return null;
  }

  toGraph(x, y) {
    return [(x - this.camera.x) / this.camera.scale, (y - this.camera.y) / this.camera.scale];
  }

  toScreen(key) {
    const box = this.layout.boxes.get(key);
    return [box.x * this.camera.scale + this.camera.x, (box.y + box.height / 2) * this.camera.scale + this.camera.y];
  }

  at(x, y) {
    const [graphX, graphY] = this.toGraph(x, y);
    for (const box of this.layout.boxes.values()) {
      if (Math.abs(graphX - box.x) <= box.width / 2 && graphY >= box.y && graphY <= box.y + box.height) return { vertex: box.vertex };
    }
    const frame = this.frames.find((each) =>
      graphX >= each.left && graphX <= each.right && graphY >= each.top && graphY <= each.top + FRAME_HEAD);
    return frame ? { frame } : {};
  }

  listen() {
    const pointers = new Map();
    let moved = 0;
    const place = (event) => [event.offsetX, event.offsetY];
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
      if (other) { // a pinch: two fingers zoom about the one that rests
        this.zoom(Math.hypot(now[0] - other[0], now[1] - other[1]) / Math.max(1, Math.hypot(before[0] - other[0], before[1] - other[1])), ...other);
      } else {
        this.pan(now[0] - before[0], now[1] - before[1]);
      }
      pointers.set(event.pointerId, now);
    });
    const end = (event) => {
      pointers.delete(event.pointerId);
      this.canvas.classList.remove("dragging");
      if (event.type === "pointerup" && moved < 5) this.press(...place(event));
    };
    this.canvas.addEventListener("pointerup", end);
    this.canvas.addEventListener("pointercancel", end);
    this.canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 16 : 1;
      this.zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0016)), ...place(event));
    }, { passive: false });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  press(x, y) {
    const { vertex, frame } = this.at(x, y);
    if (vertex?.kind === "block") this.actions.toggle(vertex.block, this);
    else if (frame) this.actions.toggle(frame.block, this);
    else this.actions.choose(vertex ?? null, this);
  }

  key(event) {
    const arrow = { ArrowUp: [0, 1], ArrowDown: [0, -1], ArrowLeft: [1, 0], ArrowRight: [-1, 0] }[event.key];
    if (arrow) {
      const next = event.shiftKey ? null : this.neighbour(event.key);
      if (next) {
        this.actions.choose(next, this);
        this.show(next.key);
      } else {
        this.pan(arrow[0] * PAN_STEP, arrow[1] * PAN_STEP);
      }
    } else if (event.key === "+" || event.key === "=") this.zoom(1.25);
    else if (event.key === "-") this.zoom(0.8);
    else if (event.key === "0") this.fit();
    else if (event.key === "Escape") this.actions.choose(null, this);
    else if (event.key === "Enter") {
      const vertex = this.layout.boxes.get(this.state.chosen)?.vertex;
      if (vertex?.block) this.actions.toggle(vertex.block, this);
    } else return;
    event.preventDefault();
  }

  /** The vertex that an arrow key leads to from the one chosen: what it reads from, what reads it, or beside. */
  neighbour(key) {
    const box = this.layout.boxes.get(this.state.chosen);
    const boxes = [...this.layout.boxes.values()];
    if (!box) return boxes[0]?.vertex ?? null;
    const { curves } = this.layout;
    let keys;
    if (key === "ArrowUp") keys = curves.filter((curve) => curve.to === box.vertex.key).map((curve) => curve.from);
    else if (key === "ArrowDown") keys = curves.filter((curve) => curve.from === box.vertex.key).map((curve) => curve.to);
    else {
      const side = key === "ArrowRight" ? 1 : -1;
      const beside = boxes.filter((other) => other.y === box.y && (other.x - box.x) * side > 0);
      beside.sort((a, b) => Math.abs(a.x - box.x) - Math.abs(b.x - box.x));
      keys = beside.slice(0, 1).map((other) => other.vertex.key);
    }
    return keys.length ? this.layout.boxes.get(keys[0]).vertex : null;
  }
}

function areaOf(points) {
  const xs = points.map((point) => point[0]), ys = points.map((point) => point[1]);
  return { left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys) + NODE_HEIGHT };
}

/** A frame around the nodes of each block that is unfolded. */
function framesOf(layout, delegate) {
  const frames = new Map();
  for (const { vertex, x, y, width, height } of layout.boxes.values()) {
    if (vertex.kind !== "node" || !vertex.block) continue;
    const frame = frames.get(vertex.block.key) ?? { block: vertex.block, left: Infinity, right: -Infinity, top: Infinity, bottom: -Infinity };
    frame.left = Math.min(frame.left, x - width / 2 - FRAME_MARGIN);
    frame.right = Math.max(frame.right, x + width / 2 + FRAME_MARGIN);
    frame.top = Math.min(frame.top, y - FRAME_HEAD - 4);
    frame.bottom = Math.max(frame.bottom, y + height + FRAME_MARGIN);
    frames.set(vertex.block.key, frame);
  }
  return [...frames.values()];
}

function labelsOf(layout, delegate) {
  const labels = new Map();
  for (const { from, value, points } of layout.curves) {
    const [[x, y], [toX]] = points;
    const text = delegate.type(value);
    const label = { text, x: x + (toX - x) * 0.2 + 5, y: y + NODE_HEIGHT + 13, isDynamic: text.includes("≤") };
    if (!labels.has(`${from} ${value}`)) labels.set(`${from} ${value}`, label);
  }
  return [...spread([...labels.values()])];
}

/** Labels that would cover one another go below. */
function spread(labels) {
  const rows = new Map();
  for (const label of labels) {
    const near = rows.get(label.y) ?? [];
    const level = near.filter((other) => Math.abs(other.x - label.x) < 110).length;
    near.push({ ...label });
    rows.set(label.y, near);
    label.y += Math.min(level, 2) * 12;
  }
  return labels;
}
