// The settings of `generate`, checked as Python checks its own.

import type { GenerateOptions } from "./api.ts";
import { PteronError, shown } from "./errors.ts";

const BIAS_MAX = 100; // a bias of -100 bans a token
const isInteger = Number.isInteger;
const RULES: Record<string, [rule: string, holds: (value: number) => boolean]> = {
  maxTokens: ["an integer of at least 1", (value) => value >= 1 && (isInteger(value) || value === Infinity)],
  temperature: ["0 or more", (value) => value >= 0],
  topK: ["an integer of at least 0", (value) => isInteger(value) && value >= 0],
  topP: ["above 0 and at most 1", (value) => value > 0 && value <= 1],
  minP: ["from 0 to 1", (value) => value >= 0 && value <= 1],
  seed: ["an integer from 0 to 2147483647", (value) => isInteger(value) && value >= 0 && value < 2 ** 31],
  repetitionPenalty: ["above 0 and finite", (value) => value > 0 && value < Infinity],
  presencePenalty: ["finite", Number.isFinite],
  frequencyPenalty: ["finite", Number.isFinite],
};
const NAMES = [...Object.keys(RULES), "logitBias", "stop", "signal"];

const wrong = (message: string) => new PteronError("input", message);

/** Those that are given, with a list of stop texts; throws for names and values that `generate` does not take. */
export function checkedSettings(given: GenerateOptions): GenerateOptions & { stop?: string[] } {
  if (typeof given !== "object" || given === null) throw wrong(`The settings must be an object, not ${shown(given)}.`);
  const found = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as GenerateOptions;
  for (const [name, value] of Object.entries(found)) {
    if (!NAMES.includes(name)) throw wrong(`There is no setting ${name}: ${advice(name)}`);
    const [rule, holds] = RULES[name] ?? [];
    if (rule && !(typeof value === "number" && holds?.(value)))
      throw wrong(`${name} must be ${rule}, not ${shown(value)}.`);
  }
  if (found.logitBias !== undefined) checkBiases(found.logitBias);
  if (found.stop !== undefined) {
    const stops = [found.stop].flat();
    if (!stops.every((each) => typeof each === "string"))
      throw wrong(`stop must be a text or a list of texts, not ${shown(found.stop)}.`);
    found.stop = stops as string[];
  }
  return found as GenerateOptions & { stop?: string[] };
}

function checkBiases(given: unknown): void {
  if (typeof given !== "object" || given === null)
    throw wrong(`logitBias must be an object of tokens and numbers, not ${shown(given)}.`);
  for (const [token, bias] of Object.entries(given)) {
    if (!/^\d+$/.test(token)) throw wrong(`logitBias: ${token} is not a token.`);
    if (!(typeof bias === "number" && Math.abs(bias) <= BIAS_MAX))
      throw wrong(`logitBias: ${shown(bias)} for token ${token} is not from -100 to 100.`);
  }
}

/** The name that was probably meant; all names if none is near. */
function advice(name: string): string {
  const plain = (text: string) => text.toLowerCase().replace(/[^a-z]/g, "");
  const near = NAMES.map((each): [string, number] => [each, distance(plain(name), plain(each))]);
  const [best, count] = near.sort((a, b) => a[1] - b[1])[0] as [string, number];
  return count <= best.length / 3 ? `did you mean ${best}?` : `known are ${NAMES.join(", ")}.`;
}

/** How many letters must be changed, added or removed. */
function distance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, at) => at);
  for (let i = 1; i <= from.length; i++) {
    const next = [i];
    for (let j = 1; j <= to.length; j++) {
      const changed = (row[j - 1] as number) + Number(from[i - 1] !== to[j - 1]);
      next.push(Math.min(changed, (row[j] as number) + 1, (next[j - 1] as number) + 1));
    }
    row = next;
  }
  return row[to.length] as number;
}
