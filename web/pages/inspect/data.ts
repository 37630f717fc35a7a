// The data of the page, as tools/inspect/page/details.py describes it.

export interface Histogram {
  counts: number[];
  low: number;
  high: number;
  mean: number;
  looked_at: number;
  elements: number;
  not_finite: number;
  bits: number | null;
}

export type Constant = { key: string; type: string; bytes: number; is_given: boolean; histogram: Histogram | null };

export interface Value {
  id: number;
  dtype: string | null; // null: a live integer
  shape_max: number[];
  dynamic: number[];
  constant: number | null;
  is_state: boolean;
}

export type Operator = { name: string; family: string; arguments: string[]; is_available: boolean };

export type Argument = string | number | boolean | null | { value: number } | Argument[];

export type NodeRecord = { operator: number; arguments: Argument[]; reads: number[]; writes: number[] };

export type CallRecord = NodeRecord & { node: number; nodes: number[]; is_once: boolean };

export interface Launch {
  node: number;
  nodes: number[];
  operator: string;
  kernel: number;
  groups: number[];
  buffers: { name: string; access: string; kind: string; place: number; bytes: number }[];
  parameters: Record<string, unknown>;
}

export interface Memory {
  weights: number;
  states: number;
  activations_reserved: number;
  scratch_reserved: number;
  activations: number[];
  scratch: number[];
  peak_launch: number;
  peak_bytes: number;
}

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
  constants: Constant[];
  operators: Operator[];
  nodes: NodeRecord[];
  calls: CallRecord[] | null;
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
