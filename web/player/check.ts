// The check of a variant's kernels on this adapter: plans are replayed on numbers that both sides compute, and what
// launches have written is compared with answers in float64 (src/pteron/web/check.py).

import type { CheckRow } from "./api.ts";
import { aligned, Staging } from "./device.ts";
import { type Bindings, type Executable, isTensor } from "./executable.ts";
import { numbersOf } from "./expressions.ts";
import type { AnswerJson, CheckJson, PlanJson } from "./format.ts";
import type { LocalSequence, Model } from "./program.ts";
import { fromStorage, itemSize, toStorage } from "./tensors.ts";

/** The numbers of an input: floats from -1 to 1, or integers below a limit. */
export function hashed(count: number, limit: number): number[] {
  return Array.from({ length: count }, (_, at) => {
    const mixed = Math.imul(at, 2654435761) >>> 8;
    return limit === 0 ? mixed / 2 ** 23 - 1 : mixed % limit;
  });
}

/** Checks of a program's executables, with the states of a sequence, which are reset. */
export async function checkKernels(
  model: Model,
  sequence: LocalSequence,
  isWanted: (executable: string) => boolean,
): Promise<CheckRow[]> {
  const rows: CheckRow[] = [];
  for (const check of model.plans.checks ?? []) {
    if (!isWanted(check.executable)) continue;
    const executable = await model.ready(check.executable);
    const bindings = sequence.bindings(executable);
    executable.reset(bindings);
    rows.push(...(await replay(executable, bindings, check)));
    executable.reset(bindings);
  }
  return rows;
}

async function replay(executable: Executable, bindings: Bindings, check: CheckJson): Promise<CheckRow[]> {
  const { device, json } = executable;
  const { shapes, plans } = json.plans[check.shapes] as (typeof json.plans)[number];
  const plan = plans[check.plan] as PlanJson;
  json.inputs.forEach((port, at) => {
    if (!isTensor(port)) return;
    const shape = shapes[at] as number[];
    const count = shape.reduce((a, b) => a * b, 1);
    const limit = check.limits[at] ?? null;
    const data = limit === null ? new Array(count).fill(0) : hashed(count, limit);
    const bytes = new Uint8Array(aligned(count * itemSize(port.storage)));
    bytes.set(new Uint8Array(toStorage("input", data, shape, port)));
    if (bytes.length) device.gpu.queue.writeBuffer(bindings.buffers[port.buffer] as GPUBuffer, 0, bytes);
  });
  executable.refresh(plan, numbersOf(plan, new Map(check.values)) ?? []);
  const staging = submit(executable, bindings, plan, check.answers);
  const data = await staging.read();
  let at = 0;
  return check.answers.map(([first, last, operator, , , storage, allowed, values]) => {
    const size = values.length * itemSize(storage);
    const port = { id: 0, dtype: "", shape: [], storage, buffer: 0 };
    const found = fromStorage(data.slice(at, at + size), [values.length], port).data;
    at += aligned(size);
    const names = plan.launches.slice(first, last).map((launch) => executable.kernel(launch));
    const errors = values.map((value, place) => differ(found[place] as number, value, allowed));
    return { kernel: [...new Set(names)].join(" + "), operator, error: Math.max(...errors) };
  });
}

/** A difference as a part of what is allowed. */
function differ(found: number, expected: number, allowed: number): number {
  if (found === expected) return 0;
  const error = Math.abs(found - expected) / allowed;
  return Number.isNaN(error) ? Number.POSITIVE_INFINITY : error;
}

/** Replay a plan, and copy answers as soon as they are written: later launches use the memory again. */
function submit(executable: Executable, bindings: Bindings, plan: PlanJson, answers: AnswerJson[]): Staging {
  const { device } = executable;
  const sizes = answers.map(([, , , , , storage, , values]) => aligned(values.length * itemSize(storage)));
  const staging = new Staging(
    device,
    sizes.reduce((a, b) => a + b, 0),
  );
  const encoder = device.gpu.createCommandEncoder();
  let done = 0;
  let into = 0;
  answers.forEach(([, last, , buffer, offset], at) => {
    if (last > done) {
      const pass = encoder.beginComputePass();
      executable.encode(pass, plan, bindings, last, done);
      pass.end();
      done = last;
    }
    encoder.copyBufferToBuffer(
      bindings.buffers[buffer] as GPUBuffer,
      offset,
      staging.buffer,
      into,
      sizes[at] as number,
    );
    into += sizes[at] as number;
  });
  device.gpu.queue.submit([encoder.finish()]);
  return staging;
}
