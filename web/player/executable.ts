// An executable on a device: its buffers, pipelines and parameters; plans are replayed from it.

import { aligned, type Device } from "./device.ts";
import { PteronError } from "./errors.ts";
import { evaluate, numbersOf } from "./expressions.ts";
import type { ExecutableJson, LaunchJson, ModuleJson, PlanJson, Port } from "./format.ts";

const STRIDE = 256; // bytes between parameter blocks: the alignment of uniform bindings

/** Weights by their place in a stream; executables share equal ones. */
export class Weights {
  readonly streams = new Map<number, { buffer: GPUBuffer; offset: number; length: number }[]>();
  private readonly buffers = new Map<string, GPUBuffer>();
  private readonly device: Device;

  constructor(device: Device) {
    this.device = device;
  }

  buffer(bytes: number, stream: number, offset: number, length: number, isUniform: boolean): GPUBuffer {
    const key = `${stream} ${offset} ${isUniform}`;
    let buffer = this.buffers.get(key);
    if (!buffer) {
      buffer = this.device.buffer(bytes, "weight", isUniform);
      this.buffers.set(key, buffer);
      this.expect(buffer, stream, offset, length);
    }
    return buffer;
  }

  /** Note that a buffer takes a part of a stream. */
  expect(buffer: GPUBuffer, stream: number, offset: number, length: number): void {
    const parts = this.streams.get(stream) ?? [];
    this.streams.set(stream, parts);
    parts.push({ buffer, offset, length: aligned(length) });
  }

  /** Upload a chunk of a stream, which begins at `start`. */
  upload(stream: number, start: number, data: ArrayBuffer): void {
    for (const { buffer, offset, length } of this.streams.get(stream) ?? []) {
      const from = Math.max(offset, start);
      const to = Math.min(offset + length, start + data.byteLength);
      if (from < to) this.device.gpu.queue.writeBuffer(buffer, from - offset, data, from - start, to - from);
    }
  }
}

/** The buffers of an executable with those of one sequence, and bind groups of launches that use the latter. */
export class Bindings {
  readonly buffers: GPUBuffer[];
  private readonly own: Set<number>;
  private readonly executable: Executable;
  private readonly groups = new Map<number, GPUBindGroup>();

  constructor(executable: Executable, own: Map<number, GPUBuffer>) {
    this.executable = executable;
    this.own = new Set(own.keys());
    this.buffers = executable.shared.map((buffer, number) => own.get(number) ?? (buffer as GPUBuffer));
  }

  group(launch: number): GPUBindGroup {
    const [, , buffers] = this.executable.json.launches[launch] as LaunchJson;
    const groups = buffers.some((buffer) => this.own.has(buffer)) ? this.groups : this.executable.groups;
    let group = groups.get(launch);
    if (!group) {
      group = this.executable.bind(launch, this.buffers);
      groups.set(launch, group);
    }
    return group;
  }
}

export interface State {
  number: number;
  id: number;
  bytes: number;
  initial: GPUBuffer | null;
}

export class Executable {
  readonly json: ExecutableJson;
  readonly device: Device;
  readonly shared: (GPUBuffer | null)[]; // null: a state
  readonly states: State[] = [];
  readonly groups = new Map<number, GPUBindGroup>();
  readonly parameters: GPUBuffer;
  private readonly written: Uint32Array<ArrayBuffer>;
  private readonly modules: ModuleJson[];
  private readonly uniform: Set<number>;
  private pipelines: GPUComputePipeline[] = [];

  constructor(json: ExecutableJson, modules: ModuleJson[], device: Device, weights: Weights) {
    this.json = json;
    this.device = device;
    this.modules = modules;
    this.uniform = new Set(
      json.launches.flatMap(([module, , buffers]) =>
        buffers.filter((_, at) => (modules[module] as ModuleJson)[2][at]?.[1] === "uniform"),
      ),
    );
    this.shared = json.buffers.map(([kind, bytes, id = 0, stream, offset = 0, length = 0], number) => {
      if (kind === "weight") return weights.buffer(bytes, stream as number, offset, length, this.uniform.has(number));
      if (kind !== "state") return device.buffer(bytes, `${json.name} ${kind}`, this.uniform.has(number));
      const initial = stream === undefined ? null : device.buffer(bytes, `${json.name} first state`);
      if (initial) weights.expect(initial, stream as number, offset, length);
      this.states.push({ number, id, bytes, initial });
      return null;
    });
    this.parameters = device.buffer(json.blocks.length * STRIDE, `${json.name} parameters`, true);
    this.written = new Uint32Array((json.blocks.length * STRIDE) / 4);
    json.blocks.forEach(([hex], block) => {
      for (let word = 0; word < hex.length / 8; word++) {
        const bytes = hex.slice(8 * word, 8 * word + 8).match(/../g) as string[];
        this.written[(block * STRIDE) / 4 + word] = Number.parseInt(bytes.reverse().join(""), 16);
      }
    });
    if (this.written.length) device.gpu.queue.writeBuffer(this.parameters, 0, this.written);
  }

  /** Compile all kernels. */
  async compile(): Promise<void> {
    const used = new Set(this.json.launches.map(([module]) => module));
    const made = [...used].map(async (module) => {
      this.pipelines[module] = await this.device.pipeline(this.modules[module] as ModuleJson);
    });
    await Promise.all(made);
  }

  /** The states of a new sequence, with their first values. */
  bindings(): Bindings {
    const own = new Map<number, GPUBuffer>();
    for (const { number, bytes } of this.states) {
      own.set(number, this.device.buffer(bytes, `${this.json.name} state`, this.uniform.has(number)));
    }
    const bindings = new Bindings(this, own);
    if (this.states.some(({ initial }) => initial)) this.reset(bindings);
    return bindings;
  }

  reset(bindings: Bindings): void {
    const encoder = this.device.gpu.createCommandEncoder();
    for (const { number, initial } of this.states) {
      const buffer = bindings.buffers[number] as GPUBuffer;
      if (initial) encoder.copyBufferToBuffer(initial, 0, buffer, 0, buffer.size);
      else encoder.clearBuffer(buffer);
    }
    this.device.gpu.queue.submit([encoder.finish()]);
  }

  free(bindings: Bindings): void {
    for (const { number } of this.states) bindings.buffers[number]?.destroy();
  }

  /** The plan for live shapes and live integers. */
  find(shapes: (number[] | null)[], values: Map<number, number>): { plan: PlanJson; numbers: number[] } {
    const wanted = JSON.stringify(shapes);
    const found = this.json.plans.find((each) => JSON.stringify(each.shapes) === wanted);
    for (const plan of found?.plans ?? []) {
      const numbers = numbersOf(plan, values);
      if (numbers) return { plan, numbers };
    }
    const listed = (each: (number[] | null)[]) => each.map((shape) => (shape ? `[${shape}]` : "integer")).join(", ");
    const known = this.json.plans.map((each) => `(${listed(each.shapes)})`).join(", ");
    const given = [...values.values()].length ? ` and the integers ${[...values.values()]}` : "";
    throw new PteronError(
      "shape",
      `The site has no plan for the shapes (${listed(shapes)})${given}. It has plans for ${known}.`,
    );
  }

  /** Write the parameters of a plan that follow live integers, where they have changed. */
  refresh(plan: PlanJson, numbers: number[]): void {
    let [first, last] = [Number.POSITIVE_INFINITY, -1];
    for (const block of plan.blocks) {
      const [, ...live] = this.json.blocks[block] as [string, ...[number, number[]][]];
      for (const [word, expression] of live) {
        const at = (block * STRIDE) / 4 + word;
        const value = evaluate(expression, numbers) >>> 0;
        if (this.written[at] === value) continue;
        this.written[at] = value;
        [first, last] = [Math.min(first, at), Math.max(last, at)];
      }
    }
    if (last >= 0) this.device.gpu.queue.writeBuffer(this.parameters, 4 * first, this.written, first, last - first + 1);
  }

  /** The words of the parameters that grow at every step of a loop, as pairs of a word and its growth; null: not even. */
  growth(plan: PlanJson): [number, number][] | null {
    return plan.growth?.map(([block, word, by]) => [(block * STRIDE) / 4 + word, by]) ?? null;
  }

  /** Note that the GPU has advanced a plan's parameters by some steps. */
  advanced(plan: PlanJson, steps: number): void {
    for (const [word, by] of this.growth(plan) ?? []) this.written[word] = (this.written[word] as number) + steps * by;
  }

  /** The name of a launch's kernel. */
  kernel(launch: number): string {
    const [module] = this.json.launches[launch] as LaunchJson;
    return (this.modules[module] as ModuleJson)[0];
  }

  /** Whether any launch of a plan binds a buffer. */
  touches(plan: PlanJson, buffer: number): boolean {
    return plan.launches.some((launch) => (this.json.launches[launch] as LaunchJson)[2].includes(buffer));
  }

  /** Record a plan's launches, or only the first of them. */
  encode(
    pass: GPUComputePassEncoder,
    plan: PlanJson,
    bindings: Bindings,
    count = plan.launches.length,
    from = 0,
  ): void {
    for (let at = from; at < count; at++) {
      const launch = plan.launches[at] as number;
      const [module, groups] = this.json.launches[launch] as LaunchJson;
      pass.setPipeline(this.pipelines[module] as GPUComputePipeline);
      pass.setBindGroup(0, bindings.group(launch));
      pass.dispatchWorkgroups(...groups);
    }
  }

  /** Run the launches that depend only on weights. */
  runOnce(): void {
    if (!this.json.once.launches.length) return;
    const encoder = this.device.gpu.createCommandEncoder();
    const pass = encoder.beginComputePass();
    this.encode(pass, this.json.once, new Bindings(this, new Map()));
    pass.end();
    this.device.gpu.queue.submit([encoder.finish()]);
  }

  bind(launch: number, buffers: GPUBuffer[]): GPUBindGroup {
    const [module, , bound, block, starts] = this.json.launches[launch] as LaunchJson;
    const [, , bindings, params] = this.modules[module] as ModuleJson;
    const entries: GPUBindGroupEntry[] = bindings.map(([binding, , bytes], at) => {
      const buffer = buffers[bound[at] as number] as GPUBuffer;
      const offset = starts[at] ?? 0;
      return { binding, resource: { buffer, offset, size: bytes || buffer.size - offset } };
    });
    if (params.length) {
      const resource = { buffer: this.parameters, offset: block * STRIDE, size: params[1] };
      entries.push({ binding: params[0], resource });
    }
    const layout = (this.pipelines[module] as GPUComputePipeline).getBindGroupLayout(0);
    return this.device.gpu.createBindGroup({ layout, entries });
  }
}

export function isTensor(port: Port): port is Required<Port> {
  return port.buffer !== undefined;
}
