// A loaded program: its executables on a device, and sequences that run them.

import type { GenerateOptions, Input, Message, Output, Piece, Program, Report, RunOptions, Sequence } from "./api.ts";
import { aligned, type Device } from "./device.ts";
import { PteronError, shown } from "./errors.ts";
import { type Bindings, Executable, isTensor, type Weights } from "./executable.ts";
import { evaluate } from "./expressions.ts";
import type { ExecutableJson, Index, MethodJson, PlansJson } from "./format.ts";
import { Generation } from "./generate.ts";
import type { Store } from "./store.ts";
import { checkedInput, fromStorage, itemSize, shapeOf, toStorage } from "./tensors.ts";
import type { Tokenizer } from "./tokenizer.ts";

/** Everything that the sequences of a program share. */
export class Model {
  readonly index: Index;
  readonly plans: PlansJson;
  readonly device: Device;
  readonly tokenizer: Tokenizer | null;
  readonly kept = new Map<number, { buffer: GPUBuffer; storage: string }>(); // outputs that stay on the GPU
  private readonly weights: Weights;
  private readonly executables = new Map<string, Executable>();
  private tail: Promise<unknown> = Promise.resolve();
  private count = 0;

  constructor(index: Index, plans: PlansJson, device: Device, weights: Weights, tokenizer: Tokenizer | null) {
    this.index = index;
    this.plans = plans;
    this.device = device;
    this.weights = weights;
    this.tokenizer = tokenizer;
    for (const name of Object.keys(index.methods)) this.executable(name);
  }

  executable(name: string): Executable {
    let found = this.executables.get(name);
    if (!found) {
      const json = this.plans.executables[name];
      if (!json)
        throw new PteronError(
          "input",
          `The site has no method ${name}; it has ${Object.keys(this.index.methods).join(", ")}.`,
        );
      found = new Executable(json, this.plans.modules, this.device, this.weights);
      this.executables.set(name, found);
    }
    return found;
  }

  /** The same, compiled: for executables that are not made at load. */
  async ready(name: string): Promise<Executable> {
    const isNew = !this.executables.has(name);
    const executable = this.executable(name);
    if (isNew) {
      await executable.compile();
      executable.runOnce();
    }
    return executable;
  }

  async compile(): Promise<void> {
    await Promise.all([...this.executables.values()].map((each) => each.compile()));
  }

  /** Run what depends only on weights, once these are there. */
  runOnce(): void {
    for (const each of this.executables.values()) each.runOnce();
  }

  /** Keep a buffer for later calls; its number. */
  keep(buffer: GPUBuffer, storage: string): number {
    this.count++;
    this.kept.set(this.count, { buffer, storage });
    return this.count;
  }

  /** One at a time: calls share the memory of activations. */
  exclusive<T>(work: () => Promise<T>): Promise<T> {
    const result = this.tail.then(work);
    this.tail = result.catch(() => {});
    return result;
  }
}

/** The number of an input that is on the GPU. */
function keptNumber(input: Input): number | undefined {
  return typeof input === "object" && "gpu" in input ? input.gpu : undefined;
}

/** Live integers of a call, by value id. */
function liveValues(executable: ExecutableJson, inputs: Input[], names: string[]): Map<number, number> {
  return new Map(
    executable.sources.map(([symbol, input, , index]) => {
      const given = inputs[input] as Input;
      const data = typeof given === "number" ? [given] : "shape" in given ? given.data : given;
      const value = Number(data.length === 1 ? data[0] : data[index < 0 ? data.length + index : index]);
      if (!Number.isInteger(value) || Math.abs(value) > 2 ** 31 - 1) {
        throw new PteronError("input", `${names[input]}: ${value} is not an integer of 32 bits.`);
      }
      return [symbol, value];
    }),
  );
}

/** A sequence of calls, on the thread that has the device. */
export class LocalSequence implements Sequence {
  readonly model: Model;
  private readonly bound = new Map<string, Bindings>();
  private generation: Generation | null = null;
  private isClosed = false;

  constructor(model: Model) {
    this.model = model;
  }

  private check(): void {
    this.model.device.check();
    if (this.isClosed) throw new PteronError("stopped", "The sequence is closed.");
  }

  bindings(executable: Executable): Bindings {
    this.check();
    let found = this.bound.get(executable.json.name);
    if (!found) {
      found = executable.bindings();
      this.bound.set(executable.json.name, found);
    }
    return found;
  }

  async run(inputs: Record<string, Input>, options: RunOptions = {}): Promise<Record<string, Output>> {
    const { index, device } = this.model;
    const name = options.method ?? (Object.keys(index.methods)[0] as string);
    const executable = this.model.executable(name);
    const spec = index.methods[name] as MethodJson;
    const onGpu = [options.onGpu ?? []].flat();
    const unknown = onGpu.find((each) => !spec.outputs.some(({ name }) => name === each));
    if (unknown !== undefined) {
      const listed = spec.outputs.map(({ name }) => name).join(", ");
      throw new PteronError("input", `onGpu: there is no output ${unknown}; the outputs are ${listed}.`);
    }
    const [read, reading] = await this.model.exclusive(async () => {
      const read = this.submit(executable, spec, inputs, onGpu);
      // Submitted at once: the next call overwrites the buffers.
      return [read, device.read(read.map(({ buffer, size }) => ({ buffer, offset: 0, size })))] as const;
    });
    const data = await reading;
    return Object.fromEntries(
      read.map(({ name, shape, port, gpu }, at) => {
        const output = fromStorage(data[at] as ArrayBuffer, shape, port);
        return [name, gpu === undefined ? output : { ...output, gpu }];
      }),
    );
  }

  /** Submit a call; which buffers have its outputs. They are read in the order of submissions. */
  private submit(executable: Executable, spec: MethodJson, inputs: Record<string, Input>, onGpu: string[]) {
    const { device } = this.model;
    const { json } = executable;
    this.check();
    if (typeof inputs !== "object" || inputs === null) {
      throw new PteronError("input", `The inputs must be an object of inputs by name, not ${shown(inputs)}.`);
    }
    const unknown = Object.keys(inputs).find((name) => !spec.inputs.some((each) => each.name === name));
    const missing = spec.taken.find((at) => inputs[(spec.inputs[at] as { name: string }).name] === undefined);
    if (unknown !== undefined || missing !== undefined) {
      const listed = spec.inputs.map(({ name }) => name).join(", ");
      const what =
        unknown !== undefined
          ? `There is no input ${unknown}`
          : `The input ${spec.inputs[missing as number]?.name} is missing`;
      throw new PteronError("input", `${what}; the inputs are ${listed}.`);
    }
    const names = spec.taken.map((at) => (spec.inputs[at] as { name: string }).name);
    const given = names.map((name) => checkedInput(name, inputs[name]));
    const shapes = json.inputs.map((port, at) =>
      isTensor(port)
        ? shapeOf(
            names[at] as string,
            given[at] as Input,
            json.plans.map((each) => each.shapes[at] as number[]),
          )
        : null,
    );
    const values = liveValues(json, given, names);
    const { plan, numbers } = executable.find(shapes, values);
    const bindings = this.bindings(executable);
    const writes = json.inputs.map((port, at) => {
      if (!isTensor(port) || keptNumber(given[at] as Input) !== undefined) return null;
      return { port, data: toStorage(names[at] as string, given[at] as Input, shapes[at] as number[], port) };
    });
    for (const [input, low, high, operator] of plan.indices) {
      const wrong = [...new Int32Array(writes[input]?.data ?? new ArrayBuffer(0))].find(
        (each) => each < low || each > high,
      );
      if (wrong !== undefined) {
        throw new PteronError(
          "input",
          `${names[input]}: the index ${wrong} of ${operator} is outside ${low} to ${high}.`,
        );
      }
    }
    for (const write of writes) {
      if (!write?.data.byteLength) continue;
      const padded = write.data.byteLength % 4 ? new Uint8Array(write.data.byteLength + 2) : new Uint8Array(write.data);
      if (write.data.byteLength % 4) padded.set(new Uint8Array(write.data));
      device.gpu.queue.writeBuffer(bindings.buffers[write.port.buffer] as GPUBuffer, 0, padded);
    }
    executable.refresh(plan, numbers);
    const encoder = device.gpu.createCommandEncoder();
    json.inputs.forEach((port, at) => {
      const number = keptNumber(given[at] as Input);
      if (!isTensor(port) || number === undefined) return;
      const kept = this.model.kept.get(number);
      if (kept?.storage !== port.storage) {
        const what = kept ? `holds ${kept.storage}, not ${port.storage}` : "is freed";
        throw new PteronError("input", `${names[at]}: this output on the GPU ${what}.`);
      }
      const size = Math.min(kept.buffer.size, (bindings.buffers[port.buffer] as GPUBuffer).size);
      encoder.copyBufferToBuffer(kept.buffer, 0, bindings.buffers[port.buffer] as GPUBuffer, 0, size);
    });
    const pass = encoder.beginComputePass();
    executable.encode(pass, plan, bindings);
    pass.end();
    const live = new Map(plan.shapes);
    const outputs = spec.outputs.map(({ name }, at) => {
      const port = json.outputs[spec.given[at] as number];
      if (!port || !isTensor(port)) {
        const value = plan.integers.find(([id]) => id === port?.id)?.[1] ?? [0];
        const constant = device.buffer(4, "integer");
        device.gpu.queue.writeBuffer(constant, 0, Int32Array.of(evaluate(value, numbers)));
        return {
          name,
          shape: [],
          buffer: constant,
          size: 4,
          port: { id: 0, dtype: "i32", shape: [], storage: "i32", buffer: 0 },
          gpu: undefined,
        };
      }
      const shape = live.get(port.id) ?? port.shape;
      const size = shape.reduce((a, b) => a * b, 1) * itemSize(port.storage);
      const buffer = bindings.buffers[port.buffer] as GPUBuffer;
      if (!onGpu.includes(name)) return { name, shape, buffer, size, port, gpu: undefined };
      const kept = device.buffer(size, `${name} of ${json.name}`);
      if (size) encoder.copyBufferToBuffer(buffer, 0, kept, 0, aligned(size));
      const gpu = this.model.keep(kept, port.storage);
      return { name, shape, buffer, size: 0, port, gpu };
    });
    device.gpu.queue.submit([encoder.finish()]);
    return outputs;
  }

  async *generate(
    prompt: string | number[] | Message[],
    options: GenerateOptions = {},
  ): AsyncGenerator<Piece, void, void> {
    this.check();
    this.generation ??= await Generation.of(this);
    yield* this.generation.run(prompt, options);
  }

  async reset(): Promise<void> {
    await this.model.exclusive(async () => {
      this.model.device.check();
      for (const [name, bindings] of this.bound) this.model.executable(name).reset(bindings);
      this.generation?.reset();
    });
  }

  async close(): Promise<void> {
    this.isClosed = true;
    for (const [name, bindings] of this.bound) this.model.executable(name).free(bindings);
    this.bound.clear();
  }
}

export class LocalProgram extends LocalSequence implements Program {
  readonly notes: string[];
  private readonly found: Report;
  private readonly store: Store;

  constructor(model: Model, report: Report, store: Store) {
    super(model);
    this.found = report;
    this.store = store;
    this.notes = report.notes;
  }

  get name(): string {
    return this.model.index.name;
  }

  get page(): string {
    return this.model.index.page;
  }

  get methods() {
    return this.model.index.methods;
  }

  get language() {
    const found = this.model.index.language;
    return found
      ? { context: found.context, chat: found.chat !== null, sampling: found.sampling as GenerateOptions }
      : null;
  }

  get labels() {
    return this.model.index.labels ?? null;
  }

  async sequence(): Promise<Sequence> {
    return new LocalSequence(this.model);
  }

  async free(outputs: Record<string, Output> | Output | Output[]): Promise<void> {
    if (typeof outputs !== "object" || outputs === null)
      throw new PteronError("input", `free takes outputs of run, not ${shown(outputs)}.`);
    const listed =
      "shape" in outputs && Array.isArray(outputs.shape) ? [outputs as Output] : (Object.values(outputs) as Output[]);
    for (const { gpu } of listed) {
      if (gpu === undefined) continue;
      this.model.kept.get(gpu)?.buffer.destroy(); // submitted commands may still use it
      this.model.kept.delete(gpu);
    }
  }

  async data(): Promise<unknown> {
    const { data } = this.model.index;
    return data ? this.store.json(data) : null;
  }

  async tokenize(text: string): Promise<number[]> {
    if (!this.model.tokenizer) throw new PteronError("input", "The site has no tokenizer: it is not a language model.");
    return this.model.tokenizer.encode(text);
  }

  async report(): Promise<Report> {
    return this.found;
  }

  override async close(): Promise<void> {
    if (this.model.device.isClosed) this.model.device.check();
    await super.close();
    this.model.device.close();
  }
}
