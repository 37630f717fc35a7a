// Pteron.load on the thread that will have the device.

import type { CheckRow, LoadOptions, Progress, Report } from "./api.ts";
import { checkKernels } from "./check.ts";
import { adapterName, choose, openDevice, requestAdapter } from "./device.ts";
import { PteronError } from "./errors.ts";
import { Weights } from "./executable.ts";
import type { Index, PlansJson, Variant } from "./format.ts";
import { samplerName } from "./generate.ts";
import { LocalProgram, Model } from "./program.ts";
import { Store } from "./store.ts";
import { Tokenizer, type TokenizerJson } from "./tokenizer.ts";

const AT_ONCE = 4; // downloads

export const STOPPED = "Loading was stopped.";

export async function loadHere(url: string | URL, options: LoadOptions): Promise<LocalProgram> {
  try {
    options.signal?.throwIfAborted();
    return await loadVariant(url, options);
  } catch (error) {
    throw options.signal?.aborted ? new PteronError("stopped", STOPPED) : error;
  }
}

/** The first variant that the adapter can run, and that gives right numbers there. */
async function loadVariant(url: string | URL, options: LoadOptions): Promise<LocalProgram> {
  const progress = new Teller(options.onProgress);
  let adapter = await requestAdapter();
  const store = new Store(url, options.cache !== false, options.signal);
  progress.say("Reading the index");
  const index = await store.index();
  const { variants, problems } = choose(index, adapter, options.variant);
  const wrong: string[] = [];
  for (const variant of variants) {
    const model = await open(adapter, index, variant, store, progress);
    const report: Report = {
      adapter: adapterName(adapter),
      variant: variant.name,
      variants: problems,
      checks: [],
      notes: store.notes,
    };
    const program = new LocalProgram(model, report, store);
    report.checks = await checks(program, variant, store, options.check ?? "first", progress);
    const failed = report.checks.filter(({ error }) => !(error <= 1));
    if (!failed.length) {
      await store.tidy(index).catch(() => {});
      progress.say("Ready");
      return program;
    }
    await program.close();
    const kernels = [...new Set(failed.map(({ kernel }) => kernel))].join(", ");
    wrong.push(`${variant.name}: ${kernels}`);
    store.notes.push(
      `The kernels of the variant ${variant.name} give wrong numbers on this adapter (${kernels}): a simpler one is used.`,
    );
    const problem = problems.find(({ name }) => name === variant.name);
    if (problem) problem.problem = `gives wrong numbers: ${kernels}`;
    adapter = await requestAdapter(); // one that gave a device is spent
  }
  throw new PteronError(
    "wrong",
    `${adapterName(adapter)} computes wrong numbers (${wrong.join("; ")}), so the model is not run here. Try another browser, or a newer driver.`,
  );
}

/** The result of the check of a variant's kernels: by default of the first time on this adapter. */
async function checks(
  program: LocalProgram,
  variant: Variant,
  store: Store,
  when: "first" | "always" | "never",
  progress: Teller,
): Promise<CheckRow[]> {
  if (when === "never" || !program.model.plans.checks?.length) return [];
  const key = `check ${program.model.device.name} ${navigator.userAgent} ${variant.sha256}`;
  const known = when === "first" ? await store.remember(key) : undefined;
  if (known) return JSON.parse(known, (_, value) => value ?? Number.POSITIVE_INFINITY);
  progress.say("Checking this GPU");
  // Samplers compile and are checked at their first use, all but the usual one.
  const usual = samplerName(program.model.index.language?.sampling ?? {}, Number.POSITIVE_INFINITY);
  const isWanted = (name: string) => when === "always" || name === usual || !name.startsWith("sample-");
  const found = await checkKernels(program.model, program, isWanted);
  await store.remember(key, JSON.stringify(found));
  return found;
}

class Teller {
  total = 0;
  private loaded = 0;
  private text = "";
  private readonly tell: ((progress: Progress) => void) | undefined;

  constructor(tell?: (progress: Progress) => void) {
    this.tell = tell;
  }

  say(text: string): void {
    this.text = text;
    this.add(0);
  }

  add(bytes: number): void {
    this.loaded += bytes;
    this.tell?.({ text: this.text, loaded: this.loaded, total: this.total });
  }
}

/** A variant on a device: weights are fetched while kernels compile. */
async function open(
  adapter: GPUAdapter,
  index: Index,
  variant: Variant,
  store: Store,
  progress: Teller,
): Promise<Model> {
  progress.total = variant.streams.reduce((sum, each) => sum + (index.streams[each]?.bytes ?? 0), 0);
  progress.say("Reading plans");
  const [device, plans, tokens] = await Promise.all([
    openDevice(adapter, variant),
    store.json<PlansJson>(variant),
    index.language ? store.json<TokenizerJson>(index.language.tokenizer) : null,
  ]);
  const weights = new Weights(device);
  try {
    if (!plans?.modules || Object.keys(index.methods).some((name) => !plans.executables?.[name])) {
      throw new PteronError("format", `${variant.file} has no plans for this program: export the site again.`);
    }
    const model = new Model(index, plans, device, weights, tokens && new Tokenizer(tokens));
    progress.say("Loading weights");
    await Promise.all([model.compile(), fetchWeights(index, variant, store, weights, progress)]);
    model.runOnce();
    await device.gpu.queue.onSubmittedWorkDone();
    device.check();
    return model;
  } catch (error) {
    const explained = await device.explain(error);
    device.close();
    throw explained;
  }
}

async function fetchWeights(
  index: Index,
  variant: Variant,
  store: Store,
  weights: Weights,
  progress: Teller,
): Promise<void> {
  const wanted = variant.streams.flatMap((stream) => {
    let start = 0;
    return (index.streams[stream]?.chunks ?? []).map((chunk) => {
      start += chunk.bytes;
      return { stream, chunk, start: start - chunk.bytes };
    });
  });
  let next = 0;
  const work = async () => {
    for (let each = wanted[next++]; each; each = wanted[next++]) {
      const data = await store.get(each.chunk, (count) => progress.add(count));
      weights.upload(each.stream, each.start, data);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}
