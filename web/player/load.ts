// Pteron.load on the thread that will have the device.

import type { LoadOptions, Progress } from "./api.ts";
import { adapterName, choose, openDevice, requestAdapter } from "./device.ts";
import { Weights } from "./executable.ts";
import type { Index, PlansJson, Variant } from "./format.ts";
import { LocalProgram, Model } from "./program.ts";
import { Store } from "./store.ts";
import { Tokenizer, type TokenizerJson } from "./tokenizer.ts";

const AT_ONCE = 4; // downloads

export async function loadHere(url: string | URL, options: LoadOptions): Promise<LocalProgram> {
  const progress = new Report(options.onProgress);
  const adapter = await requestAdapter();
  const store = new Store(url, options.cache !== false, options.signal);
  progress.say("Reading the index");
  const index = await store.index();
  const { variants, problems } = choose(index, adapter, options.variant);
  const variant = variants[0] as Variant;
  const model = await open(adapter, index, variant, store, progress);
  const found = {
    adapter: adapterName(adapter),
    variant: variant.name,
    variants: problems,
    checks: [],
    notes: store.notes,
  };
  return new LocalProgram(model, found);
}

class Report {
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
  progress: Report,
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
    const model = new Model(index, plans, device, weights, tokens && new Tokenizer(tokens));
    progress.say("Loading weights");
    await Promise.all([model.compile(), fetchWeights(index, variant, store, weights, progress)]);
    model.runOnce();
    await device.gpu.queue.onSubmittedWorkDone();
    device.check();
    progress.say("Ready");
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
  progress: Report,
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
      const data = await store.get(each.chunk);
      weights.upload(each.stream, each.start, data);
      progress.add(data.byteLength);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}
