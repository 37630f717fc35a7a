// The data of the page, as tools/inspect/page/details.py describes it.

type Numbers<Names extends string> = Record<Names, number>;

export type Histogram = Numbers<"low" | "high" | "mean" | "looked_at" | "elements" | "not_finite"> & {
  counts: number[];
  bits: number | null;
};

export interface Value {
  id: number;
  dtype: string | null; // null: a live integer
  shape_max: number[];
  dynamic: number[];
  constant: number | null;
  is_state: boolean;
}

export type Argument = string | number | boolean | null | { value: number } | Argument[];

export type NodeRecord = { operator: number; arguments: Argument[]; reads: number[]; writes: number[] };

export interface Launch {
  node: number;
  nodes: number[];
  operator: string;
  kernel: number;
  groups: number[];
  buffers: { name: string; access: string; kind: string; place: number; bytes: number }[];
  parameters: Record<string, unknown>;
}

export type Memory = Numbers<"weights" | "states" | "activations_reserved" | "scratch_reserved"> &
  Numbers<"peak_launch" | "peak_bytes"> & { activations: number[]; scratch: number[] };

export interface Plan {
  title: string;
  inputs: string[];
  shapes: Record<number, number[]>;
  launches: Launch[];
  memory: Memory | null;
  notes: string[];
  problem: string | null;
}

export interface DelegateRecord {
  name: string;
  problems: string[];
  inputs: number[];
  outputs: number[];
  values: Value[];
  constants: { key: string; type: string; bytes: number; is_given: boolean; histogram: Histogram | null }[];
  operators: { name: string; family: string; arguments: string[]; is_available: boolean }[];
  nodes: NodeRecord[];
  calls: (NodeRecord & { node: number; nodes: number[]; is_once: boolean })[] | null;
  repetitions: [first: number, end: number][][];
  plans: Plan[];
}

export interface Method {
  name: string;
  inputs: string[];
  outputs: string[];
  instructions: { kind: string; text: string; delegate: number | null }[];
  delegates: DelegateRecord[];
}

export interface Program {
  name: string;
  kind: string;
  bytes: number;
  adapter: string | null;
  planned_for: string;
  problems: string[];
  made_for: string | null;
  host_reasons: string[];
  methods: Method[];
  kernels: { name: string; workgroup: number[]; source: string | null }[];
}
