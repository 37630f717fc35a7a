// The adapter, the first variant of a site that it can run, and the device with the limits that the variant needs.

import { PteronError } from "./errors.ts";
import type { Index, ModuleJson, Variant } from "./format.ts";

export class Device {
  readonly gpu: GPUDevice;
  readonly name: string;
  private lost: string | null = null;
  private problem: string | null = null;
  isClosed = false;
  private readonly pipelines = new Map<string, Promise<GPUComputePipeline>>();

  constructor(gpu: GPUDevice, name: string) {
    this.gpu = gpu;
    this.name = name;
    gpu.lost.then((info) => {
      this.lost = info.message || info.reason;
    });
    gpu.addEventListener("uncapturederror", (event) => {
      this.problem ??= event.error.message;
    });
  }

  /** Throw if the device cannot be used. */
  check(): void {
    if (this.isClosed) throw new PteronError("stopped", "The program is closed.");
    if (this.lost !== null) {
      throw new PteronError("lost", `${this.name} was lost, with the model on it (${this.lost}). Load the page again.`);
    }
    if (this.problem !== null) {
      if (!/memory/i.test(this.problem)) throw new PteronError("gpu", `${this.name}: ${this.problem}`);
      throw new PteronError(
        "memory",
        `${this.name} has too little memory for this model: close other tabs, or take a smaller one.`,
      );
    }
  }

  /** An error of WebGPU, explained. */
  async explain(error: unknown): Promise<Error> {
    await Promise.race([this.gpu.lost, new Promise((resolve) => setTimeout(resolve, 50))]);
    try {
      this.check();
    } catch (explained) {
      return explained as Error;
    }
    return error as Error;
  }

  buffer(size: number, label: string, isUniform = false): GPUBuffer {
    const { COPY_SRC, COPY_DST, STORAGE, UNIFORM } = GPUBufferUsage;
    const usage = STORAGE | COPY_SRC | COPY_DST | (isUniform ? UNIFORM : 0);
    return this.gpu.createBuffer({ size: Math.max(16, Math.ceil(size / 16) * 16), usage, label });
  }

  pipeline([name, code]: ModuleJson): Promise<GPUComputePipeline> {
    let pipeline = this.pipelines.get(code);
    if (!pipeline) {
      const module = this.gpu.createShaderModule({ code, label: name });
      pipeline = this.gpu.createComputePipelineAsync({
        layout: "auto",
        label: name,
        compute: { module, entryPoint: "main" },
      });
      this.pipelines.set(code, pipeline);
    }
    return pipeline.catch((error) => {
      throw new PteronError("gpu", `The kernel ${name} cannot be compiled on ${this.name}: ${error.message}`);
    });
  }

  /** Bytes of buffers, after all commands submitted so far. */
  async read(parts: { buffer: GPUBuffer; offset: number; size: number }[]): Promise<ArrayBuffer[]> {
    const staging = new Staging(
      this,
      parts.reduce((sum, part) => sum + aligned(part.size), 0),
    );
    const encoder = this.gpu.createCommandEncoder();
    let at = 0;
    for (const { buffer, offset, size } of parts) {
      if (size) encoder.copyBufferToBuffer(buffer, offset, staging.buffer, at, aligned(size));
      at += aligned(size);
    }
    this.gpu.queue.submit([encoder.finish()]);
    const data = await staging.read();
    at = 0;
    return parts.map(({ size }) => {
      const start = at;
      at += aligned(size);
      return data.slice(start, start + size);
    });
  }

  close(): void {
    this.isClosed = true;
    this.gpu.destroy();
  }
}

export const aligned = (size: number): number => Math.ceil(size / 4) * 4;

/** Memory that the host reads once. */
export class Staging {
  readonly buffer: GPUBuffer;
  private readonly device: Device;

  constructor(device: Device, size: number) {
    const { MAP_READ, COPY_DST } = GPUBufferUsage;
    this.device = device;
    this.buffer = device.gpu.createBuffer({ size: Math.max(16, size), usage: MAP_READ | COPY_DST, label: "readback" });
  }

  async read(): Promise<ArrayBuffer> {
    try {
      this.device.check();
      await this.buffer.mapAsync(GPUMapMode.READ);
    } catch (error) {
      throw await this.device.explain(error);
    }
    const data = this.buffer.getMappedRange().slice(0);
    this.buffer.destroy();
    this.device.check();
    return data;
  }
}

export async function requestAdapter(): Promise<GPUAdapter> {
  const gpu = globalThis.navigator?.gpu;
  if (!gpu) {
    const where =
      globalThis.isSecureContext === false
        ? "This page is not secure: open it over https."
        : "Use a current Chrome, Edge, Safari or Firefox.";
    throw new PteronError("no-webgpu", `This browser has no WebGPU, which runs the model on your GPU. ${where}`);
  }
  const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) {
    throw new PteronError(
      "no-webgpu",
      "This browser has WebGPU, but found no GPU that it may use. Is hardware acceleration on?",
    );
  }
  return adapter;
}

export function adapterName({ info }: GPUAdapter): string {
  return info.description || [info.vendor, info.architecture].filter(Boolean).join(" ") || "the adapter";
}

export function isSoftware({ info }: GPUAdapter): boolean {
  const text = `${info.architecture} ${info.device} ${info.description}`;
  return Boolean(info.isFallbackAdapter) || /swiftshader|llvmpipe|software|basic render/i.test(text);
}

/** Why an adapter cannot run a variant, or should not; empty if it can. */
export function problemOf(variant: Variant, adapter: GPUAdapter): string {
  const { needs } = variant;
  for (const feature of needs.features) if (!adapter.features.has(feature)) return `needs ${feature}`;
  for (const [name, least] of Object.entries(needs.limits)) {
    const most = adapter.limits[name as keyof GPUSupportedLimits] as number;
    if (most < least)
      return `needs ${name} ${least.toLocaleString("en")}, the adapter has ${most.toLocaleString("en")}`;
  }
  const { subgroupMinSize, subgroupMaxSize } = adapter.info;
  if (needs.subgroupSize && !(subgroupMinSize === needs.subgroupSize && subgroupMaxSize === needs.subgroupSize)) {
    return `needs subgroups of ${needs.subgroupSize}, the adapter has ${subgroupMinSize} to ${subgroupMaxSize}`;
  }
  for (const feature of needs.language) {
    if (!navigator.gpu.wgslLanguageFeatures?.has(feature)) return `needs ${feature} of WGSL`;
  }
  return "";
}

/** The variants that an adapter can run, those for its kind first. */
export function choose(
  index: Index,
  adapter: GPUAdapter,
  wanted?: string,
): { variants: Variant[]; problems: { name: string; problem: string }[] } {
  const named = wanted === undefined ? index.variants : index.variants.filter((each) => each.name === wanted);
  if (!named.length) {
    const known = index.variants.map((each) => each.name).join(", ");
    throw new PteronError("input", `The site has no variant ${wanted}; it has ${known}.`);
  }
  const problems = named.map((each) => ({ name: each.name, problem: problemOf(each, adapter) }));
  const fitting = named.filter((_, at) => problems[at]?.problem === "");
  if (!fitting.length) {
    const listed = problems.map(({ name, problem }) => `${name} ${problem}`).join("; ");
    throw new PteronError("limits", `${adapterName(adapter)} is too small for this model: ${listed}.`);
  }
  const isOwn = (each: Variant) => each.needs.software === isSoftware(adapter);
  return { variants: [...fitting.filter(isOwn), ...fitting.filter((each) => !isOwn(each))], problems };
}

export async function openDevice(adapter: GPUAdapter, variant: Variant): Promise<Device> {
  const { features, limits } = variant.needs;
  const wanted = { requiredFeatures: features as GPUFeatureName[], requiredLimits: limits, label: "pteron" };
  const name = adapterName(adapter);
  const gpu = await adapter.requestDevice(wanted).catch((error) => {
    throw new PteronError(
      "gpu",
      `${name} cannot be opened: ${error.message}. Load the page again, or restart the browser.`,
    );
  });
  return new Device(gpu, name);
}
