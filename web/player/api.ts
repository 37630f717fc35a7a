// What a page may use of the player. This file is also player.d.ts.

/** Why something failed: `error.code` of a PteronError. The message is a sentence for people. */
export type ErrorCode =
  | "no-webgpu" // the browser has no WebGPU, or no adapter
  | "limits" // the adapter cannot run any variant of the site
  | "download" // a file could not be fetched
  | "damaged" // a file is not what the site's index says
  | "format" // the site is of another version
  | "input" // an input is missing, or has a wrong type or value
  | "shape" // there is no plan for these live shapes
  | "context" // a prompt is longer than the context
  | "memory" // the adapter has too little memory
  | "lost" // the adapter was lost, with all that was on it
  | "wrong" // kernels give wrong numbers on this adapter
  | "stopped" // the program or the sequence is closed
  | "gpu"; // any other error of WebGPU

export type Numbers = Float32Array | Float64Array | Int32Array | Uint32Array | Int16Array | Int8Array | Uint8Array;
/** An input: numbers whose count fits one planned shape, numbers with their shape, or one integer. */
export type Input =
  | Numbers
  | BigInt64Array
  | ArrayLike<number>
  | { data: ArrayLike<number>; shape: number[]; gpu?: number }
  | number;

export interface Output {
  /** Float32Array of floats, Int32Array of integers, Uint8Array of booleans; empty if it stays on the GPU. */
  data: Float32Array | Int32Array | Uint8Array;
  shape: number[];
  /** The number of an output that stays on the GPU, to be an input of later calls. */
  gpu?: number;
}

export interface RunOptions {
  /** The method; the program's first if it is not named. */
  method?: string;
  /** Names of outputs that stay on the GPU, until `free`. */
  onGpu?: string[];
}

export interface Progress {
  /** What is done now, for people. */
  text: string;
  /** Bytes of weights that are on the GPU, and those of all. */
  loaded: number;
  total: number;
}

export interface LoadOptions {
  onProgress?: (progress: Progress) => void;
  /** Run everything in a worker (the default where there are workers). */
  worker?: boolean;
  /** The name of a variant of the site, instead of the first that the adapter can run. */
  variant?: string;
  /** Keep files in the browser's cache (the default). */
  cache?: boolean;
  /** Check the kernels: at the first load on an adapter (the default), always, or never. */
  check?: "first" | "always" | "never";
  signal?: AbortSignal;
}

export interface GenerateOptions {
  maxTokens?: number;
  temperature?: number;
  topK?: number;
  topP?: number;
  minP?: number;
  seed?: number;
  repetitionPenalty?: number;
  presencePenalty?: number;
  frequencyPenalty?: number;
  logitBias?: Record<number, number>;
  /** Texts that end an answer; they are not part of it. */
  stop?: string | string[];
  signal?: AbortSignal;
}

export interface Message {
  role: "system" | "user" | "assistant";
  content: string;
}

/** A token, and the text that it completes. */
export interface Piece {
  text: string;
  token: number;
  /** Of the last piece. stop: the model ended its answer, or a stop text did; length: there are `maxTokens`;
   * context: it is full. An answer that the page stops has none. */
  finishReason?: "stop" | "length" | "context";
}

export interface Spec {
  name: string;
  kind: string;
  dtype?: string;
  shape?: number[];
  /** Which dims of the program may be smaller. */
  dynamic?: number[];
  /** Of a tensor: f32[1, 3, 64..320 by 16, ≤8], with the sizes that dims of the program may have. */
  type?: string;
  /** Of an input: the shapes that the site has plans for. */
  planned?: number[][];
}

/** One run of calls with states of its own, such as a KV cache. */
export interface Sequence {
  run(inputs: Record<string, Input>, options?: RunOptions): Promise<Record<string, Output>>;
  /** Text, token ids or messages in, pieces of text out. */
  generate(prompt: string | number[] | Message[], options?: GenerateOptions): AsyncGenerator<Piece, void, void>;
  /** Set all states to their first values. */
  reset(): Promise<void>;
  /** Free the memory of the states. */
  close(): Promise<void>;
}

export interface CheckRow {
  kernel: string;
  operator: string;
  /** Largest difference from the float64 answer, as a part of what is allowed: above 1 is wrong. */
  error: number;
}

export interface Report {
  adapter: string;
  variant: string;
  variants: { name: string; problem: string }[];
  checks: CheckRow[];
  notes: string[];
}

export interface Program extends Sequence {
  readonly name: string;
  readonly page: string;
  /** `states` is how many tensors a method keeps between calls. */
  readonly methods: Record<string, { inputs: Spec[]; outputs: Spec[]; states?: number }>;
  /** Of a language model: the longest conversation in tokens, and whether it has a chat template. */
  readonly language: { context: number; chat: boolean; sampling: GenerateOptions } | null;
  /** Names of classes, if the site has them. */
  readonly labels: string[] | null;
  /** What the page should tell: a full disk, for example. */
  readonly notes: string[];
  sequence(): Promise<Sequence>;
  /** Free outputs that stayed on the GPU: what `run` has given, or some of it. */
  free(outputs: Record<string, Output> | Output | Output[]): Promise<void>;
  tokenize(text: string): Promise<number[]>;
  /** What the site has for its page, such as the words of a model; null if nothing. */
  data(): Promise<unknown>;
  /** Adapter, variant and the result of the check of its kernels. */
  report(): Promise<Report>;
}

export interface PteronApi {
  /** Load a site of `pteron export web`: the address of its folder. */
  load(url: string | URL, options?: LoadOptions): Promise<Program>;
}
