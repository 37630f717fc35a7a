// Numbers as text for people, and text in the room that it has.

/** 512 B, 5.1 kB, 848.2 MB. */
export function humanBytes(count: number): string {
  if (count < 1000) return `${count} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let size = count / 1000;
  while (size >= 999.95 && units.length > 1) {
    size /= 1000;
    units.shift();
  }
  return `${size.toFixed(1)} ${units[0]}`;
}

/** "1 node", "1,024 nodes", "2 launches". */
export function counted(count: number, noun: string): string {
  const plural = noun.endsWith("ch") ? `${noun}es` : `${noun}s`;
  return `${count.toLocaleString("en")} ${count === 1 ? noun : plural}`;
}

/** A number in few digits. */
export function fewDigits(number: number): string {
  const size = Math.abs(number);
  if (Number.isInteger(number) && size < 1e6) return String(number);
  return size >= 1e-3 && size < 1e5 ? String(Number(number.toPrecision(4))) : number.toExponential(2);
}

/** A text, cut so that a canvas draws it at most that wide. */
export function shortened(pen: CanvasRenderingContext2D, text: string, width: number): string {
  if (pen.measureText(text).width <= width) return text;
  let end = text.length - 1;
  while (end > 1 && pen.measureText(`${text.slice(0, end)}…`).width > width) end--;
  return `${text.slice(0, end)}…`;
}
