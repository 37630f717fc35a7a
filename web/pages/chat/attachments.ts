// Files that are sent with a message. The text of a text file becomes a part of the message; a picture is made small
// and sent as a data URL, if the model takes pictures.

import { iconButton, make } from "../../shared/elements.ts";
import { humanBytes } from "../../shared/text.ts";

export interface Attachment {
  kind: "text" | "image";
  name: string;
  size: number; // bytes
  data: string; // the text, or the data URL of a picture
}

const TEXT_MAX = 256_000; // bytes
const SIDE_MAX = 1024; // pixels; models see pictures no larger, and browsers store little
const QUALITY = 0.85;

/** Read a file that the user chose; an error is a sentence for the user. */
export async function readFile(file: File, takesImages: boolean, model: string): Promise<Attachment> {
  if (!file.type.startsWith("image/") || file.type.includes("svg")) return readText(file);
  if (!takesImages) throw new Error(`${model} does not take pictures.`);
  return readPicture(file);
}

async function readText(file: File): Promise<Attachment> {
  const { name, size } = file;
  if (size > TEXT_MAX)
    throw new Error(`${name} has ${humanBytes(size)}; a text file may have ${humanBytes(TEXT_MAX)}.`);
  try {
    const data = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    if (!data.includes("\0")) return { kind: "text", name, size, data };
  } catch {
    // Not UTF-8.
  }
  throw new Error(`${name} is neither a text in UTF-8 nor a picture.`);
}

async function readPicture(file: File): Promise<Attachment> {
  const picture = await createImageBitmap(file).catch(() => {
    throw new Error(`${file.name} is not a picture that this browser can read.`);
  });
  const scale = Math.min(1, SIDE_MAX / Math.max(picture.width, picture.height));
  const [width, height] = [picture.width, picture.height].map((side) => Math.max(1, Math.round(side * scale)));
  const canvas = make("canvas", { width, height });
  const context = canvas.getContext("2d") as CanvasRenderingContext2D;
  context.fillStyle = "white"; // below transparent parts, which JPEG does not have
  context.fillRect(0, 0, width, height);
  context.drawImage(picture, 0, 0, width, height);
  const data = canvas.toDataURL("image/jpeg", QUALITY);
  const size = Math.round(((data.length - data.indexOf(",")) * 3) / 4);
  return { kind: "image", name: file.name, size, data };
}

/** A text file as a part of a message: its name, and its text in a fence that the text does not have. */
export function textOf({ name, data }: Attachment): string {
  const longest = Math.max(2, ...[...data.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = "`".repeat(longest + 1);
  return `${name}:\n\n${fence}\n${data.replace(/\n$/, "")}\n${fence}`;
}

/** An attachment with its name and size; with `remove`, a button for that. */
export function chip({ kind, name, size, data }: Attachment, remove?: () => void): HTMLElement {
  return make(
    "span.chip",
    kind === "image" ? make("img", { src: data, alt: "" }) : null,
    make("span.chip-name", { title: name }, name),
    make("span.quiet", humanBytes(size)),
    remove ? iconButton("close", `Remove ${name}`, remove) : null,
  );
}
