// A picture of a file or of the camera, scaled to what a network takes; its classes, or the picture that it makes.

import type { Output, Program, Spec } from "../../player/api.ts";
import { byId, fill, make } from "../../shared/elements.ts";
import { clearError, loadSite, ranking, shares, showError } from "../common/load.ts";

const SHOWN = 5; // classes
const SCALES: Record<string, [number[], number[]]> = {
  imagenet: [
    [0.485, 0.456, 0.406],
    [0.229, 0.224, 0.225],
  ],
  unit: [
    [0, 0, 0],
    [1, 1, 1],
  ],
  signed: [
    [0.5, 0.5, 0.5],
    [0.5, 0.5, 0.5],
  ],
};
const canvas = byId<HTMLCanvasElement>("seen");
const video = byId<HTMLVideoElement>("video");
let isBusy = false;

const shapeOf = (spec: Spec) => spec.planned?.[0] ?? (spec.shape as number[]);

/** The middle of a picture in the network's size, as planes of numbers. */
function planes(picture: CanvasImageSource, width: number, height: number, spec: Spec): Float32Array {
  const [, , rows, columns] = shapeOf(spec) as [number, number, number, number];
  [canvas.width, canvas.height] = [columns, rows];
  const context = canvas.getContext("2d", { willReadFrequently: true }) as CanvasRenderingContext2D;
  const scale = Math.max(columns / width, rows / height);
  const [w, h] = [columns / scale, rows / scale];
  context.drawImage(picture, (width - w) / 2, (height - h) / 2, w, h, 0, 0, columns, rows);
  const { data } = context.getImageData(0, 0, columns, rows);
  const [means, deviations] = SCALES[byId<HTMLSelectElement>("scale").value] as [number[], number[]];
  const count = rows * columns;
  const found = new Float32Array(3 * count);
  for (let plane = 0; plane < 3; plane++) {
    const [mean, deviation] = [means[plane] as number, deviations[plane] as number];
    for (let at = 0; at < count; at++)
      found[plane * count + at] = ((data[4 * at + plane] as number) / 255 - mean) / deviation;
  }
  return found;
}

async function look(program: Program, picture: CanvasImageSource, width: number, height: number): Promise<void> {
  const [method, { inputs }] = Object.entries(program.methods)[0] as [string, { inputs: Spec[] }];
  const spec = inputs[0] as Spec;
  const data = planes(picture, width, height, spec);
  const started = performance.now();
  const outputs = await program.run({ [spec.name]: { data, shape: shapeOf(spec) } }, { method });
  byId("speed").textContent = `${Math.round(performance.now() - started)} ms`;
  fill(
    byId("result"),
    Object.entries(outputs).map(([name, output]) => show(name, output, program)),
  );
}

/** Classes by their share, or a tensor as a grey picture. */
function show(name: string, { data, shape }: Output, program: Program): HTMLElement {
  const sizes = shape.filter((size) => size > 1);
  if (sizes.length === 2 || (sizes.length === 3 && shape.length === 4))
    return drawn(data, sizes.slice(-2) as [number, number]);
  const ranked = shares(data).map((share, place): [string, number] => [
    program.labels?.[place] ?? `class ${place}`,
    share,
  ]);
  const best = ranked.sort((a, b) => b[1] - a[1]).slice(0, SHOWN);
  return make("div", make("h2", name), ranking(best));
}

/** The first plane of a tensor, its least number black and its greatest white. */
function drawn(data: ArrayLike<number>, [rows, columns]: [number, number]): HTMLElement {
  const result = make("canvas", { width: columns, height: rows });
  const context = result.getContext("2d") as CanvasRenderingContext2D;
  const image = context.createImageData(columns, rows);
  let [least, most] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (let at = 0; at < rows * columns; at++) {
    least = Math.min(least, data[at] as number);
    most = Math.max(most, data[at] as number);
  }
  for (let at = 0; at < rows * columns; at++) {
    const grey = (255 * ((data[at] as number) - least)) / (most - least || 1);
    image.data.set([grey, grey, grey, 255], 4 * at);
  }
  context.putImageData(image, 0, 0);
  return result;
}

async function watch(program: Program): Promise<void> {
  const stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  video.srcObject = stream;
  await video.play();
  byId("camera").textContent = "Stop";
  while (video.srcObject) {
    await look(program, video, video.videoWidth, video.videoHeight);
    await new Promise(requestAnimationFrame);
  }
}

function stopWatching(): void {
  for (const track of (video.srcObject as MediaStream | null)?.getTracks() ?? []) track.stop();
  video.srcObject = null;
  byId("camera").textContent = "Camera";
}

const program = await loadSite();
if (program) {
  byId("picture").hidden = false;
  const once = async (work: () => Promise<void>) => {
    if (isBusy) return;
    isBusy = true;
    clearError();
    await work().catch(showError);
    isBusy = false;
  };
  const file = byId<HTMLInputElement>("file");
  const again = () =>
    once(async () => {
      const given = file.files?.[0];
      if (!given) return;
      const picture = await createImageBitmap(given).catch(() => {
        for (const id of ["result", "speed"]) byId(id).replaceChildren();
        canvas.getContext("2d")?.clearRect(0, 0, canvas.width, canvas.height);
        throw new Error(`${given.name} is not a picture that this browser can read.`);
      });
      await look(program, picture, picture.width, picture.height);
    });
  file.addEventListener("change", again);
  byId("scale").addEventListener("change", again);
  byId("camera").addEventListener("click", () => {
    if (video.srcObject) stopWatching();
    else once(() => watch(program));
  });
}
