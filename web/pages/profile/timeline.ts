// The timeline: layers above, launches below, each as wide as it takes long.

import { html } from "lit-html";
import { byId } from "../../shared/elements.ts";
import { humanBytes, shortened } from "../../shared/text.ts";
import { giga, percent, seconds } from "./numbers.ts";
import { colours, isOwn, type Launch, launches, total } from "./profile.ts";

let last = 0;
const spans = launches.map((launch) => {
  last += launch.seconds;
  return { launch, begin: last - launch.seconds, end: last };
});
const sampler = spans.find((span) => !isOwn(span.launch));
let [from, to] = [0, total || 1]; // in sight
let dragged: { x: number; from: number; to: number } | null = null;

export function timeline() {
  const drag = (event: PointerEvent) => {
    dragged = { x: event.clientX, from, to };
    (event.target as Element).setPointerCapture(event.pointerId);
  };
  const drop = () => {
    dragged = null;
  };
  const leave = () => {
    byId("tip").hidden = true;
  };
  return html`
    <canvas id="timeline" height="132" tabindex="0" aria-label="timeline of launches" @wheel=${zoom}
      @pointerdown=${drag} @pointermove=${move} @pointerup=${drop} @pointerleave=${leave} @dblclick=${() => show(0, total)}></canvas>`;
}

export function draw(): void {
  const canvas = byId<HTMLCanvasElement>("timeline");
  const { clientWidth: width, clientHeight: height } = canvas;
  const ratio = window.devicePixelRatio || 1;
  Object.assign(canvas, { width: width * ratio, height: height * ratio });
  const pen = canvas.getContext("2d") as CanvasRenderingContext2D;
  const ink = getComputedStyle(document.body).color;
  const quiet = getComputedStyle(byId("what")).color;
  pen.scale(ratio, ratio);
  Object.assign(pen, { font: "11px system-ui, sans-serif", textBaseline: "middle" });
  const at = (time: number) => ((time - from) / (to - from)) * width;
  const label = (text: string, x: number, y: number, room: number, colour: string) => {
    pen.fillStyle = colour;
    pen.fillText(shortened(pen, text, room), x, y);
  };
  const head = (left: number, text: string) => {
    pen.fillStyle = quiet;
    pen.fillRect(left, 12, 1, 82);
    label(text, left + 4, 20, 80, quiet);
  };
  let layer: number | null = null;
  for (const span of spans) {
    const [left, right] = [at(span.begin), at(span.end)];
    if (right < 0 || left > width) continue;
    pen.fillStyle = colours.get(span.launch.family) ?? "";
    pen.fillRect(left, 36, Math.max(right - left - (right - left > 3 ? 1 : 0), 0.5), 58);
    if (right - left > 44) label(span.launch.operator, left + 4, 65, right - left - 8, "#ffffff");
    if (span.launch.layer !== layer) {
      layer = span.launch.layer;
      head(left, layer === null ? "" : `layer ${layer}`);
    }
    if (span === sampler) head(left, "sampler");
  }
  const marks = width < 500 ? 3 : 6;
  for (let mark = 0; mark <= marks; mark += 1) {
    const x = Math.min(Math.max((mark / marks) * width, 4), width - 4);
    pen.textAlign = mark === 0 ? "left" : mark === marks ? "right" : "center";
    label(seconds(from + ((to - from) * mark) / marks), x, 112, 200, ink);
  }
}

function timeAt(event: MouseEvent): number {
  const box = (event.target as Element).getBoundingClientRect();
  return from + ((event.clientX - box.left) / box.width) * (to - from);
}

function show(begin: number, end: number): void {
  const room = Math.min(Math.max(end - begin, total / 1e5), total || 1);
  from = Math.min(Math.max(begin, 0), (total || 1) - room);
  to = from + room;
  draw();
}

function zoom(event: WheelEvent): void {
  event.preventDefault();
  const middle = timeAt(event);
  const factor = Math.exp(event.deltaY * 0.002);
  show(middle - (middle - from) * factor, middle + (to - middle) * factor);
}

function move(event: PointerEvent): void {
  if (dragged) {
    const by = ((dragged.x - event.clientX) / byId("timeline").clientWidth) * (dragged.to - dragged.from);
    return show(dragged.from + by, dragged.to + by);
  }
  const time = timeAt(event);
  const span = spans.find((each) => each.begin <= time && time < each.end);
  const tip = byId("tip");
  tip.hidden = !span;
  tip.textContent = span ? described(span.launch) : "";
  const left = Math.min(event.clientX + 14, window.innerWidth - 300);
  Object.assign(tip.style, { left: `${left}px`, top: `${event.clientY + 16}px` });
}

function described(launch: Launch): string {
  const layer = launch.layer === null ? "" : `; layer ${launch.layer}`;
  const rate = launch.operations !== null && launch.seconds ? launch.operations / launch.seconds : null;
  return [
    launch.operator,
    `${seconds(launch.seconds)}, ${percent(total ? launch.seconds / total : 0)} of all launches`,
    `kernel ${launch.kernel}, ${launch.groups.join(" × ")} workgroups`,
    isOwn(launch) ? `nodes ${launch.nodes.join(", ")}${layer}` : "samples the next token",
    `${humanBytes(launch.bytes_read)} read, ${humanBytes(launch.bytes_written)} written`,
    rate === null ? "" : `${giga(rate)} GFLOP/s`,
  ]
    .join("\n")
    .trim();
}

window.addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
Object.assign(window, { draw }); // for tests
