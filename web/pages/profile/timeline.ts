// The timeline: layers above, launches below, each as wide as it takes long.

import { byId } from "../../shared/elements.ts";
import { seconds } from "./numbers.ts";
import { isOwn, type Launch, launches, total } from "./profile.ts";

export function showTimeline(colourOf: (launch: Launch) => string, described: (launch: Launch) => string): void {
  let begins = 0;
  const spans = launches.map((launch) => {
    const begin = begins;
    begins += launch.seconds;
    return { launch, begin, end: begins };
  });
  const sampler = spans.find((span) => !isOwn(span.launch));
  const canvas = byId<HTMLCanvasElement>("timeline");
  const tip = byId("tip");
  let [from, to] = [0, total || 1];
  let dragged: { x: number; from: number; to: number } | null = null;

  function draw(): void {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = canvas;
    Object.assign(canvas, { width: width * ratio, height: height * ratio });
    const pen = canvas.getContext("2d") as CanvasRenderingContext2D;
    const ink = getComputedStyle(document.body).color;
    const quiet = getComputedStyle(byId("what")).color;
    pen.scale(ratio, ratio);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const at = (time: number) => ((time - from) / (to - from)) * width;
    const head = (left: number, text: string) => {
      pen.fillStyle = quiet;
      pen.fillRect(left, 12, 1, 82);
      label(pen, text, left + 4, 20, 80, quiet);
    };
    let layer: number | null = null;
    for (const span of spans) {
      const [left, right] = [at(span.begin), at(span.end)];
      if (right < 0 || left > width) continue;
      pen.fillStyle = colourOf(span.launch);
      pen.fillRect(left, 36, Math.max(right - left - (right - left > 3 ? 1 : 0), 0.5), 58);
      if (right - left > 44) label(pen, span.launch.operator, left + 4, 65, right - left - 8, "#ffffff");
      if (span.launch.layer !== layer) {
        layer = span.launch.layer;
        head(left, layer === null ? "" : `layer ${layer}`);
      }
      if (span === sampler) head(left, "sampler");
    }
    const marks = width < 500 ? 3 : 6;
    for (let mark = 0; mark <= marks; mark += 1) {
      const x = mark === 0 ? 4 : mark === marks ? width - 4 : (mark / marks) * width;
      pen.textAlign = mark === 0 ? "left" : mark === marks ? "right" : "center";
      label(pen, seconds(from + ((to - from) * mark) / marks), x, 112, 200, ink);
    }
  }

  function timeAt(event: MouseEvent): number {
    const box = canvas.getBoundingClientRect();
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
      const by = ((dragged.x - event.clientX) / canvas.clientWidth) * (dragged.to - dragged.from);
      return show(dragged.from + by, dragged.to + by);
    }
    const time = timeAt(event);
    const span = spans.find((each) => each.begin <= time && time < each.end);
    tip.hidden = !span;
    if (!span) return;
    tip.textContent = described(span.launch);
    tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - 300)}px`;
    tip.style.top = `${event.clientY + 16}px`;
  }

  canvas.addEventListener("wheel", zoom, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    dragged = { x: event.clientX, from, to };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", () => {
    dragged = null;
  });
  canvas.addEventListener("dblclick", () => show(0, total));
  canvas.addEventListener("pointerleave", () => {
    tip.hidden = true;
  });
  canvas.addEventListener("pointermove", move);
  window.addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  Object.assign(window, { draw }); // for tests
  draw();
}

/** A text, shortened to the room that it has. */
function label(pen: CanvasRenderingContext2D, text: string, x: number, y: number, room: number, colour: string): void {
  let shown = text;
  while (shown.length > 1 && pen.measureText(shown).width > room) shown = `${shown.slice(0, -2)}…`;
  pen.fillStyle = colour;
  pen.fillText(shown, x, y);
}
