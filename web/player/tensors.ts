// Inputs and outputs: numbers of a page <-> bytes of a buffer.

import type { Input, Output } from "./api.ts";
import { PteronError, shown } from "./errors.ts";
import type { Port } from "./format.ts";

const isList = (given: unknown) => typeof given === "object" && given !== null && "length" in given;

/** An input, if it is one. */
export function checkedInput(name: string, given: unknown): Input {
  if (typeof given === "number" || isList(given)) return given as Input;
  const { data, shape } = (given ?? {}) as { data?: unknown; shape?: unknown };
  if (isList(data) && Array.isArray(shape)) return given as Input;
  throw new PteronError(
    "input",
    `${name}: give numbers, or numbers with their shape {data, shape}, not ${shown(given)}.`,
  );
}

/** The shape of an input: the one that it states, or the only planned one that has as many elements. */
export function shapeOf(name: string, input: Input, planned: number[][]): number[] {
  if (typeof input === "number") return [];
  if ("shape" in input) return input.shape;
  const fitting = planned.filter((shape) => shape.reduce((a, b) => a * b, 1) === input.length);
  const distinct = new Set(fitting.map(String));
  if (distinct.size === 1) return fitting[0] as number[];
  const known = [...new Set(planned.map((shape) => `[${shape}]`))].join(", ");
  const what = distinct.size
    ? `${input.length} numbers fit several shapes, so state one: {data, shape}`
    : `there is no plan for ${input.length} numbers`;
  throw new PteronError("shape", `${name}: ${what}. The site has plans for ${known}.`);
}

function elements(input: Input): ArrayLike<number> | BigInt64Array {
  if (typeof input === "number") return [input];
  return "shape" in input ? input.data : input;
}

/** The bytes of an input as its buffer holds them. */
export function toStorage(name: string, input: Input, shape: number[], port: Required<Port>): ArrayBuffer {
  const given = elements(input);
  const count = shape.reduce((a, b) => a * b, 1);
  if (given.length !== count) {
    throw new PteronError("input", `${name}: ${given.length} numbers do not fill the shape [${shape}].`);
  }
  if (port.storage === "f16") return Uint16Array.from(given as ArrayLike<number>, toHalf).buffer;
  if (port.storage === "f32") return Float32Array.from(given as ArrayLike<number>, Number).buffer;
  const result = new Int32Array(count);
  for (let at = 0; at < count; at++) {
    const value = Number(given[at]);
    if (!Number.isInteger(value) || value < -(2 ** 31) || value >= 2 ** 32) {
      throw new PteronError("input", `${name}: ${value} is not an integer of 32 bits.`);
    }
    result[at] = port.dtype === "bool" ? Number(value !== 0) : value;
  }
  return result.buffer;
}

export function fromStorage(data: ArrayBuffer, shape: number[], port: Required<Port>): Output {
  if (port.storage === "f16") return { data: Float32Array.from(new Uint16Array(data), fromHalf), shape };
  if (port.storage === "f32") return { data: new Float32Array(data), shape };
  return { data: port.dtype === "bool" ? Uint8Array.from(new Int32Array(data)) : new Int32Array(data), shape };
}

export const itemSize = (storage: string): number => (storage === "f16" ? 2 : 4);

const float = new Float32Array(1);
const bits = new Uint32Array(float.buffer);

/** The bits of an f32, as a signed integer. */
export function floatBits(value: number): number {
  float[0] = value;
  return (bits[0] as number) | 0;
}

/** The f16 nearest to a number, ties to even, as its bits. */
export function toHalf(value: number): number {
  float[0] = value;
  const x = bits[0] as number;
  const sign = (x >>> 16) & 0x8000;
  const rest = x & 0x7fffffff;
  if (rest > 0x7f800000) return sign | 0x7e00; // NaN
  if (rest >= 0x477ff000) return sign | 0x7c00; // rounds to infinity
  if (rest < 0x38800000) {
    const scaled = Math.abs(float[0] as number) * 2 ** 24; // subnormal: a multiple of 2^-24
    const low = Math.floor(scaled);
    const up = scaled - low > 0.5 || (scaled - low === 0.5 && low % 2 === 1);
    return sign | (low + Number(up));
  }
  const round = rest - 0x38000000 + 0xfff + ((rest >>> 13) & 1);
  return sign | (round >>> 13);
}

export function fromHalf(half: number): number {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >>> 10) & 31;
  const fraction = half & 0x3ff;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return sign * (exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction);
}
