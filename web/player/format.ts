// The files of a site, as src/pteron/web writes them.

import type { Spec } from "./api.ts";

export interface File {
  file: string;
  bytes: number;
  sha256: string;
}

export interface Needs {
  software: boolean;
  features: string[];
  subgroupSize: number;
  limits: Record<string, number>;
  language: string[];
}

export interface Variant extends File {
  name: string;
  needs: Needs;
  streams: number[];
}

export interface MethodJson {
  inputs: Spec[];
  outputs: Spec[];
  states?: number;
  taken: number[];
  given: number[];
}

/** constant, then pairs of a term on the tape and its factor */
export type Affine = number[];
export type Term = ["symbol", number] | ["product" | "quotient", Affine, Affine];

export interface PlanJson {
  launches: number[];
  blocks: number[];
  states: number;
  tape: Term[];
  guards: [Affine, number | null, number | null][];
  shapes: [number, number[]][];
  integers: [number, Affine][];
  indices: [number, number, number, string][];
  growth?: [number, number, number][];
}

export interface Port {
  id: number;
  dtype?: string;
  shape?: number[];
  storage?: string;
  buffer?: number;
}

/** name, WGSL, [binding, access, bytes of a uniform array], [binding, bytes] of parameters */
export type ModuleJson = [string, string, [number, string, number][], [number, number] | []];
/** kind, bytes, id of a state; stream, offset and length of content */
export type BufferJson = [string, number, number?, number?, number?, number?];
/** module, workgroups, buffers, parameter block, byte offsets of bindings */
export type LaunchJson = [number, [number, number, number], number[], number, number[]];

export interface ExecutableJson {
  name: string;
  inputs: Port[];
  outputs: Port[];
  sources: [number, number, number | null, number][];
  buffers: BufferJson[];
  blocks: [string, ...[number, Affine][]][];
  launches: LaunchJson[];
  once: PlanJson;
  plans: { shapes: (number[] | null)[]; plans: PlanJson[] }[];
}

/** first and last launch of a step, operators, buffer, byte offset, storage, allowed difference, values */
export type AnswerJson = [number, number, string, number, number, string, number, number[]];

export interface CheckJson {
  executable: string;
  shapes: number;
  plan: number;
  values: [number, number][];
  limits: (number | null)[];
  answers: AnswerJson[];
}

export interface PlansJson {
  modules: ModuleJson[];
  executables: Record<string, ExecutableJson>;
  checks?: CheckJson[];
}

export interface LanguageJson {
  tokenizer: File;
  method: string;
  context: number;
  vocabulary: number;
  lengths: number[];
  rewinds: boolean;
  ring: number;
  eos: number[];
  bos: number[];
  samplers: Record<string, string>;
  advance: number;
  sampling: Record<string, number>;
  chat: ChatJson | null;
}

export interface ChatJson {
  start: string;
  systemStart?: string; // instead, if the first message is the system's
  roles: Record<string, [string, string]>;
  answer: string;
  trim: boolean; // cut white space around messages
}

export interface Index {
  format: string;
  version: number;
  name: string;
  page: string;
  methods: Record<string, MethodJson>;
  variants: Variant[];
  streams: { bytes: number; chunks: File[] }[];
  language?: LanguageJson;
  labels?: string[];
  data?: File;
}
