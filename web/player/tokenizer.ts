// Text <-> token ids: byte pair encoding over bytes (GPT-2) or over characters (SentencePiece), as src/pteron/web writes it.

export interface TokenizerJson {
  /** Texts of tokens by id: with bytes as GPT-2's letters, or with ▁ for spaces and <0x0A> for bytes. */
  tokens: string[];
  isByteLevel: boolean;
  /** Pairs in the order in which they merge, "left right"; or scores by id: the highest merges first. */
  merges?: string[];
  scores?: number[];
  /** Ids that are never found by merging, such as single bytes: [first, last). */
  hidden?: [number, number];
  normalize: ["prepend" | "nfc" | "nfkc" | "lower" | "replace", ...string[]][];
  /** Rules that cut a text into words, one after the other. */
  splits: string[];
  isWholeWord: boolean;
  prefixSpace: boolean;
  firstByte: number; // the id of <0x00>; -1: none
  unknown: number;
  added: { id: number; text: string; isSpecial: boolean; lstrip: boolean; rstrip: boolean }[];
  bos: number[];
}

/** GPT-2's letters for bytes: printable ones are themselves, others follow from U+0100 on. */
const LETTERS: string[] = [];
const BYTES = new Map<string, number>();
for (let byte = 0, other = 0; byte < 256; byte++) {
  const isPrintable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte < 0xad) || byte > 0xad;
  LETTERS.push(String.fromCodePoint(isPrintable ? byte : 0x100 + other++));
  BYTES.set(LETTERS[byte] as string, byte);
}
const utf8 = new TextEncoder();

export class Tokenizer {
  private readonly json: TokenizerJson;
  private readonly ids = new Map<string, number>();
  private readonly ranks = new Map<string, number>();
  private readonly added = new Map<number, TokenizerJson["added"][number]>();
  private readonly splits: RegExp[];
  private readonly words = new Map<string, number[]>();

  constructor(json: TokenizerJson) {
    this.json = json;
    const [from, to] = json.hidden ?? [0, 0];
    json.tokens.forEach((text, id) => {
      if (id < from || id >= to) this.ids.set(text, id);
    });
    json.merges?.forEach((pair, rank) => {
      this.ranks.set(pair, rank);
    });
    for (const each of json.added) this.added.set(each.id, each);
    this.splits = json.splits.map((rule) => new RegExp(rule, "gu"));
  }

  /** The ids of a text. `special`: control tokens in it are recognised, as in a rendered chat. */
  encode(text: string, special = false): number[] {
    const ids: number[] = [];
    for (const [part, id] of this.parts(text, special)) {
      if (id >= 0) ids.push(id);
      else if (part) for (const word of this.cut(part)) ids.push(...this.word(word));
    }
    const { bos } = this.json;
    return bos.length && ids[0] !== bos[0] ? [...bos, ...ids] : ids;
  }

  /** The bytes that a token adds to a text. */
  bytes(id: number): Uint8Array {
    const added = this.added.get(id);
    if (added?.isSpecial) return new Uint8Array();
    const text = this.json.tokens[id] ?? "";
    if (this.json.isByteLevel) {
      if (added) return utf8.encode(text);
      return Uint8Array.from([...text].flatMap((letter) => BYTES.get(letter) ?? [...utf8.encode(letter)]));
    }
    const byte = /^<0x([0-9A-Fa-f]{2})>$/.exec(text);
    return byte ? Uint8Array.of(Number.parseInt(byte[1] as string, 16)) : utf8.encode(text.replaceAll("▁", " "));
  }

  /** A text cut at added tokens: [text, -1] or [its text, its id]. The earliest wins, then the longest. */
  private parts(text: string, special: boolean): [string, number][] {
    const wanted = this.json.added.filter((each) => special || !each.isSpecial);
    if (!wanted.length) return [[text, -1]];
    const sorted = [...wanted].sort((a, b) => b.text.length - a.text.length);
    const rule = sorted.map(({ text, lstrip, rstrip }) => {
      return (lstrip ? "\\s*" : "") + text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&") + (rstrip ? "\\s*" : "");
    });
    const found: [string, number][] = [];
    let last = 0;
    for (const match of text.matchAll(new RegExp(rule.join("|"), "gu"))) {
      found.push([text.slice(last, match.index), -1]);
      const token =
        sorted.find((each) => each.text === match[0]) ?? sorted.find((each) => each.text === match[0].trim());
      found.push([match[0], token?.id ?? -1]);
      last = match.index + match[0].length;
    }
    found.push([text.slice(last), -1]);
    return found;
  }

  private cut(text: string): string[] {
    let whole = text;
    for (const [step, ...given] of this.json.normalize) {
      if (step === "prepend") whole = given[0] + whole;
      else if (step === "replace") whole = whole.replaceAll(given[0] as string, given[1] as string);
      else if (step === "lower") whole = whole.toLowerCase();
      else whole = whole.normalize(step.toUpperCase());
    }
    if (this.json.prefixSpace && !whole.startsWith(" ")) whole = ` ${whole}`;
    let words = [whole];
    for (const rule of this.splits) words = words.flatMap((word) => isolate(word, rule));
    if (!this.json.isByteLevel) return words;
    return words.map((word) => Array.from(utf8.encode(word), (byte) => LETTERS[byte]).join(""));
  }

  private word(word: string): number[] {
    let ids = this.words.get(word);
    if (!ids) {
      const whole = this.json.isWholeWord ? this.ids.get(word) : undefined;
      ids = whole !== undefined ? [whole] : this.merge([...word]).flatMap((piece) => this.idsOf(piece));
      if (word.length < 64 && this.words.size < 20000) this.words.set(word, ids);
    }
    return ids;
  }

  private idsOf(piece: string): number[] {
    const id = this.ids.get(piece);
    if (id !== undefined) return [id];
    const { firstByte, unknown } = this.json;
    if (firstByte >= 0) return Array.from(utf8.encode(piece), (byte) => firstByte + byte);
    return unknown >= 0 ? [unknown] : [];
  }

  private rank(left: string, right: string): number | undefined {
    const { scores } = this.json;
    if (!scores) return this.ranks.get(`${left} ${right}`);
    const id = this.ids.get(left + right);
    return id === undefined ? undefined : -(scores[id] as number);
  }

  /** Merge the pair with the smallest rank first, the leftmost among equals. */
  private merge(symbols: string[]): string[] {
    const parts = symbols;
    const before = parts.map((_, at) => at - 1);
    const after = parts.map((_, at) => (at + 1 < parts.length ? at + 1 : -1));
    const heap = new Heap();
    const propose = (left: number) => {
      const right = left >= 0 ? (after[left] as number) : -1;
      if (right < 0) return;
      const rank = this.rank(parts[left] as string, parts[right] as string);
      if (rank !== undefined)
        heap.push({ rank, left, right, size: (parts[left] as string).length + (parts[right] as string).length });
    };
    for (let left = 0; left < parts.length - 1; left++) propose(left);
    for (let next = heap.pop(); next; next = heap.pop()) {
      const { left, right, size } = next;
      const [one, two] = [parts[left] as string, parts[right] as string];
      if (!one || after[left] !== right || one.length + two.length !== size) continue;
      parts[left] = one + two;
      parts[right] = "";
      const following = after[right] as number;
      after[left] = following;
      if (following >= 0) before[following] = left;
      propose(before[left] as number);
      propose(left);
    }
    return parts.filter(Boolean);
  }
}

/** A text cut around all matches of a rule, which are parts too. */
function isolate(text: string, rule: RegExp): string[] {
  const parts: string[] = [];
  let last = 0;
  for (const match of text.matchAll(rule)) {
    if (match.index > last) parts.push(text.slice(last, match.index));
    if (match[0]) parts.push(match[0]);
    last = match.index + match[0].length;
  }
  if (last < text.length) parts.push(text.slice(last));
  return parts;
}

interface Candidate {
  rank: number;
  left: number;
  right: number;
  size: number;
}

/** A binary heap: the smallest rank first, then the leftmost. */
class Heap {
  private readonly items: Candidate[] = [];

  push(item: Candidate): void {
    const { items } = this;
    let at = items.push(item) - 1;
    while (at > 0) {
      const up = (at - 1) >> 1;
      if (!isBefore(item, items[up] as Candidate)) break;
      items[at] = items[up] as Candidate;
      at = up;
    }
    items[at] = item;
  }

  pop(): Candidate | undefined {
    const { items } = this;
    const first = items[0];
    const last = items.pop();
    if (!first || !last || !items.length) return first;
    let at = 0;
    for (;;) {
      let down = 2 * at + 1;
      if (down >= items.length) break;
      if (down + 1 < items.length && isBefore(items[down + 1] as Candidate, items[down] as Candidate)) down++;
      if (!isBefore(items[down] as Candidate, last)) break;
      items[at] = items[down] as Candidate;
      at = down;
    }
    items[at] = last;
    return first;
  }
}

const isBefore = (a: Candidate, b: Candidate) => a.rank < b.rank || (a.rank === b.rank && a.left < b.left);

/** Tokens as they arrive -> text: whole characters only, and nothing from a stop text on. */
export class TextStream {
  isStopped = false;
  private held = "";
  private readonly decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  private readonly tokenizer: Tokenizer;
  private readonly stops: string[];

  constructor(tokenizer: Tokenizer, stops: string[]) {
    this.tokenizer = tokenizer;
    this.stops = stops.filter(Boolean);
  }

  push(token: number): { text: string } {
    this.held += this.decoder.decode(this.tokenizer.bytes(token), { stream: true });
    const ends = this.stops.map((stop) => this.held.indexOf(stop)).filter((at) => at >= 0);
    if (ends.length) {
      this.isStopped = true;
      return this.release(Math.min(...ends));
    }
    let keep = 0; // the longest end of the text with which a stop text begins
    for (const stop of this.stops) {
      for (let size = Math.min(stop.length - 1, this.held.length); size > keep; size--) {
        if (this.held.endsWith(stop.slice(0, size))) keep = size;
      }
    }
    return this.release(this.held.length - keep);
  }

  finish(): { text: string } {
    this.held += this.decoder.decode();
    return this.release(this.isStopped ? 0 : this.held.length);
  }

  private release(count: number): { text: string } {
    const text = this.held.slice(0, count);
    this.held = this.held.slice(count);
    return { text };
  }
}
