// The tokens of a sequence: prompts in planned lengths, then steps that stay on the GPU. The sampler draws there, writes
// its token where the model reads it, and advances the model's parameters; the host reads tokens a submission later.

import type { GenerateOptions, Message, Piece } from "./api.ts";
import { checkKernels } from "./check.ts";
import { Staging } from "./device.ts";
import { PteronError, shown } from "./errors.ts";
import { Bindings, type Executable, isTensor } from "./executable.ts";
import { numbersOf } from "./expressions.ts";
import type { LanguageJson, MethodJson, ModuleJson, PlanJson, Port } from "./format.ts";
import type { LocalSequence } from "./program.ts";
import { checkedSettings } from "./settings.ts";
import { floatBits, itemSize } from "./tensors.ts";
import { TextStream, type Tokenizer } from "./tokenizer.ts";

const STEPS_MAX = 12; // per submission; fewer than the draws that the sampler keeps
const SECONDS_MAX = 0.016; // per submission: tokens arrive as smoothly as a screen shows them
const GROWTHS = 32; // words that the sampler can advance
const SEEN_BEFORE = 2 ** 31; // in token counts: a token of the prompt
const BANNED = -3.4028234e38;
// Value ids of the sampler's states, as in pteron/llm/sampling/graphs.py.
const [LOGITS, STEPS, SEEN, BIAS, TOKEN, DRAWN, GROWING, WORDS] = [0, 1, 2, 3, 5, 6, 8, 9];

interface Submission {
  staging: Staging;
  first: number;
  count: number;
  started: number;
}

/** What a plan's steps bind besides the sampler's own buffers. */
interface Loop {
  sampler: Bindings;
  advances: { group: GPUBindGroup; count: number }[];
}

export class Generation {
  private tokens: number[] = []; // that the KV cache is certain to hold
  private pace = 1;
  private isRunning = false;
  private readonly sequence: LocalSequence;
  private readonly language: LanguageJson;
  private readonly tokenizer: Tokenizer;
  private readonly advance: GPUComputePipeline;
  private readonly samplers = new Map<string, Drawing>();

  private constructor(
    sequence: LocalSequence,
    language: LanguageJson,
    tokenizer: Tokenizer,
    advance: GPUComputePipeline,
  ) {
    this.sequence = sequence;
    this.language = language;
    this.tokenizer = tokenizer;
    this.advance = advance;
  }

  static async of(sequence: LocalSequence): Promise<Generation> {
    const { index, tokenizer, device, plans } = sequence.model;
    if (!index.language || !tokenizer) throw new PteronError("input", `${index.name} is not a language model.`);
    const advance = await device.pipeline(plans.modules[index.language.advance] as ModuleJson);
    return new Generation(sequence, index.language, tokenizer, advance);
  }

  reset(): void {
    this.tokens = [];
  }

  async *run(prompt: string | number[] | Message[], given: GenerateOptions): AsyncGenerator<Piece, void, void> {
    if (this.isRunning)
      throw new PteronError("input", "This sequence is generating already: use program.sequence() for another.");
    const settings = { ...this.language.sampling, ...checkedSettings(given) };
    const ids = this.ids(prompt);
    if (settings.signal?.aborted) return;
    this.isRunning = true;
    const pending: Submission[] = [];
    try {
      yield* this.decode(ids, settings, pending);
    } finally {
      for (const { staging } of pending) await staging.read().catch(() => {});
      this.isRunning = false;
    }
  }

  private ids(prompt: string | number[] | Message[]): number[] {
    const { context, vocabulary, bos } = this.language;
    let ids: number[];
    if (typeof prompt === "string") ids = this.tokenizer.encode(prompt);
    else if (!Array.isArray(prompt))
      throw new PteronError("input", `The prompt must be a text, token ids or messages, not ${shown(prompt)}.`);
    else if (prompt.every((each) => typeof each === "number")) ids = prompt as number[];
    else ids = this.tokenizer.encode(this.render(prompt as Message[]), true);
    if (!ids.length) ids = bos.slice(0, 1);
    if (!ids.length) throw new PteronError("input", "The prompt is empty.");
    const wrong = ids.find((id) => !(Number.isInteger(id) && id >= 0 && id < vocabulary));
    if (wrong !== undefined)
      throw new PteronError("input", `The token ${wrong} is outside the vocabulary of ${vocabulary}.`);
    if (ids.length > context) {
      throw new PteronError(
        "context",
        `The prompt has ${ids.length} tokens, the context holds ${context}: shorten it.`,
      );
    }
    return ids;
  }

  private render(messages: Message[]): string {
    const { chat } = this.language;
    if (!chat) throw new PteronError("input", "This model has no chat template: give it a text to continue.");
    const turns = messages.map((message) => {
      const { role, content } = message ?? {};
      if (typeof content !== "string")
        throw new PteronError("input", "Each message must have a role and a text: {role, content}.");
      const around = chat.roles[role];
      if (!around)
        throw new PteronError(
          "input",
          `The model's chat template has no role ${role}; it has ${Object.keys(chat.roles).join(", ")}.`,
        );
      return around[0] + (chat.trim ? content.trim() : content) + around[1];
    });
    const start = messages[0]?.role === "system" ? (chat.systemStart ?? chat.start) : chat.start;
    return start + turns.join("") + chat.answer;
  }

  private async *decode(
    ids: number[],
    options: GenerateOptions & { stop?: string[] },
    pending: Submission[],
  ): AsyncGenerator<Piece, void, void> {
    const { context, eos, rewinds } = this.language;
    const drawing = await this.drawing(options);
    let shared = 0;
    while (rewinds && shared < ids.length - 1 && this.tokens[shared] === ids[shared]) shared++;
    this.tokens = this.tokens.slice(0, shared);
    const room = context - ids.length + 1; // the last token is drawn, not read
    const { maxTokens = 256 } = options;
    const most = Math.min(maxTokens, room);
    drawing.start(ids, options);
    pending.push(await this.prefill(ids, drawing));
    const text = new TextStream(this.tokenizer, options.stop ?? []);
    let submitted = 1; // tokens
    for (let read = 0; read < most; ) {
      while (pending.length < 2 && submitted < most) {
        const submission = await this.steps(ids.length + submitted - 1, submitted, most - submitted, drawing);
        submitted += submission.count;
        pending.push(submission);
      }
      const submission = pending.shift() as Submission;
      const drawn = new Int32Array(await submission.staging.read());
      this.adapt(submission);
      for (let step = submission.first; step < submission.first + submission.count; step++) {
        const token = drawn[2 * (step % this.language.ring)] as number;
        read++;
        const isEnd = eos.includes(token);
        if (!isEnd && read < most) this.tokens.push(token);
        const piece = isEnd ? text.finish() : text.push(token);
        if (read === most && !isEnd) piece.text += text.finish().text;
        const isStopped = isEnd || text.isStopped;
        if (isStopped || read === most) {
          yield { text: piece.text, token, finishReason: isStopped ? "stop" : maxTokens > room ? "context" : "length" };
          return;
        }
        yield { text: piece.text, token };
        if (options.signal?.aborted) return;
      }
    }
  }

  /** Submit the tokens of a prompt that the cache does not hold, in the lengths that the site has plans for; and draw. */
  private async prefill(ids: number[], drawing: Drawing): Promise<Submission> {
    const { model } = this.sequence;
    const started = performance.now();
    let position = this.tokens.length;
    for (;;) {
      const left = ids.length - position;
      const length = Math.max(...this.language.lengths.filter((each) => each <= left));
      const isLast = length === left;
      const chunk = ids.slice(position, position + length);
      const staging = await model.exclusive(async () => drawing.prefill(chunk, position, isLast));
      this.tokens.push(...chunk);
      position += length;
      if (staging) return { staging, first: 0, count: 1, started };
    }
  }

  private async steps(position: number, first: number, most: number, drawing: Drawing): Promise<Submission> {
    const started = performance.now();
    const { staging, count } = await this.sequence.model.exclusive(async () => {
      return drawing.steps(position, first, Math.min(most, this.pace), this.advance);
    });
    return { staging, first, count, started };
  }

  /** Adapt the number of steps in a submission to the time that they take. */
  private adapt({ count, started, first }: Submission): void {
    if (!first) return;
    const seconds = (performance.now() - started) / 1000;
    const fitting = Math.floor((count * SECONDS_MAX) / Math.max(seconds, 1e-9));
    this.pace = Math.max(1, Math.min(this.pace + Math.max(1, this.pace >> 1), STEPS_MAX, fitting));
  }

  /** The sampler for these settings; settings that differ only in numbers share one. */
  private async drawing(options: GenerateOptions): Promise<Drawing> {
    const { model } = this.sequence;
    const name = samplerName(options, this.language.vocabulary);
    let found = this.samplers.get(name);
    if (!found) {
      const sampler = await model.ready(name);
      const rows = await model.exclusive(() => checkKernels(model, this.sequence, (each) => each === name));
      if (rows.some(({ error }) => !(error <= 1))) {
        const kernels = [...new Set(rows.map(({ kernel }) => kernel))].join(", ");
        throw new PteronError(
          "wrong",
          `${model.device.name} draws wrong tokens with these settings (${kernels}). Try temperature 0, or another browser.`,
        );
      }
      found = new Drawing(this.sequence, this.language, sampler);
      this.samplers.set(name, found);
    }
    return found;
  }
}

/** The executable that draws with these settings, by letters: random, top-k, top-p, changed logits. */
export function samplerName(options: GenerateOptions, vocabulary: number): string {
  const { temperature = 0, topK = 0, topP = 1, logitBias = {} } = options;
  const { repetitionPenalty = 1, presencePenalty = 0, frequencyPenalty = 0 } = options;
  const isRandom = temperature > 0;
  const letters = {
    r: isRandom,
    k: isRandom && topK > 0 && topK < vocabulary,
    p: isRandom && topP < 1,
    c: repetitionPenalty !== 1 || presencePenalty !== 0 || frequencyPenalty !== 0 || Object.keys(logitBias).length > 0,
  };
  return `sample-${Object.entries(letters)
    .map(([letter, is]) => (is ? letter : ""))
    .join("")}`;
}

/** The model with one sampler, over the states of one sequence. */
class Drawing {
  private readonly language: LanguageJson;
  private readonly model: Executable;
  private readonly sampler: Executable;
  private readonly sequence: LocalSequence;
  private readonly own: Bindings; // of the sampler
  private readonly token: Required<Port>;
  private readonly position: Port;
  private readonly logits: Required<Port>;
  private readonly loops = new Map<PlanJson, Loop>();
  private numbers: number[] = [];

  constructor(sequence: LocalSequence, language: LanguageJson, sampler: Executable) {
    this.sequence = sequence;
    this.language = language;
    this.sampler = sampler;
    this.model = sequence.model.executable(language.method);
    const { taken, given } = sequence.model.index.methods[language.method] as MethodJson;
    this.token = this.model.json.inputs[taken.indexOf(0)] as Required<Port>;
    this.position = this.model.json.inputs[taken.indexOf(1)] as Port;
    this.logits = this.model.json.outputs[given[0] as number] as Required<Port>;
    this.own = sampler.bindings();
  }

  /** Begin an answer. */
  start(ids: number[], options: GenerateOptions): void {
    const { queue } = this.model.device.gpu;
    const clamp = (value: number, most: number) => Math.min(Math.max(value, -most), most);
    const divisor = (value: number) => Math.min(Math.max(value, 2 ** -100), 2 ** 100);
    const minP = options.minP ?? 0;
    this.numbers = [
      options.seed ?? Math.floor(Math.random() * 2 ** 31),
      floatBits(divisor(options.temperature ?? 0)),
      Math.min(options.topK ?? 0, 2 ** 31 - 1),
      floatBits(options.topP ?? 1),
      floatBits(minP > 0 ? Math.max(Math.log(minP), -50) : -50),
      floatBits(divisor(options.repetitionPenalty ?? 1)),
      floatBits(clamp(options.presencePenalty ?? 0, 1e30)),
      floatBits(clamp(options.frequencyPenalty ?? 0, 1e30)),
      0,
    ];
    queue.writeBuffer(this.state(STEPS as number), 0, Int32Array.of(0));
    const { vocabulary } = this.language;
    const seen = this.state(SEEN as number);
    if (seen.size < 4 * vocabulary) return;
    const counts = new Uint32Array(vocabulary);
    if ((options.repetitionPenalty ?? 1) !== 1) for (const id of ids) counts[id] = SEEN_BEFORE;
    queue.writeBuffer(seen, 0, counts);
    const biases = new Float32Array(vocabulary);
    for (const [token, bias] of Object.entries(options.logitBias ?? {})) {
      if (!(Number(token) < vocabulary))
        throw new PteronError("input", `logitBias: the token ${token} is outside the vocabulary.`);
      biases[Number(token)] = bias <= -100 ? BANNED : bias;
    }
    queue.writeBuffer(this.state(BIAS as number), 0, biases);
  }

  /** Submit tokens of a prompt; after the last of them a draw, and the copy of the token that it draws. */
  prefill(chunk: number[], position: number, isLast: boolean): Staging | null {
    const { device } = this.model;
    device.check();
    const { plan, numbers, bindings } = this.stage(chunk.length, position);
    device.gpu.queue.writeBuffer(bindings.buffers[this.token.buffer] as GPUBuffer, 0, Int32Array.from(chunk));
    this.model.refresh(plan, numbers);
    const encoder = device.gpu.createCommandEncoder();
    const pass = encoder.beginComputePass();
    this.model.encode(pass, plan, bindings, isLast ? plan.launches.length : plan.states);
    pass.end();
    let staging: Staging | null = null;
    if (isLast) {
      const shape = new Map(plan.shapes).get(this.logits.id) ?? this.logits.shape;
      const row = (shape.at(-1) as number) * itemSize(this.logits.storage);
      const rows = shape.slice(0, -1).reduce((a, b) => a * b, 1);
      const into = this.own.buffers[(this.sampler.json.inputs[LOGITS as number] as Required<Port>).buffer] as GPUBuffer;
      encoder.copyBufferToBuffer(
        bindings.buffers[this.logits.buffer] as GPUBuffer,
        (rows - 1) * row,
        into,
        0,
        Math.ceil(row / 4) * 4,
      );
      const drawing = encoder.beginComputePass();
      this.sampler.encode(drawing, this.drawPlan(), this.own);
      drawing.end();
      staging = this.copyDrawn(encoder);
    }
    device.gpu.queue.submit([encoder.finish()]);
    return staging;
  }

  /** Submit steps, the first of which reads the token of the draw before `first`. */
  steps(
    position: number,
    first: number,
    most: number,
    advance: GPUComputePipeline,
  ): { staging: Staging; count: number } {
    const { device } = this.model;
    device.check();
    const { plan, numbers, bindings, values } = this.stage(1, position);
    const growth = this.model.growth(plan);
    let count = 1;
    while (growth && count < most && numbersOf(plan, new Map([...values].map(([id, value]) => [id, value + count]))))
      count++;
    this.model.refresh(plan, numbers);
    const draw = this.drawPlan();
    const loop = this.loop(plan, bindings, advance);
    const encoder = device.gpu.createCommandEncoder();
    const token = bindings.buffers[this.token.buffer] as GPUBuffer;
    encoder.copyBufferToBuffer(this.state(DRAWN as number), 8 * ((first - 1) % this.language.ring), token, 0, 4);
    const pass = encoder.beginComputePass();
    for (let step = 0; step < count; step++) {
      this.model.encode(pass, plan, bindings);
      this.sampler.encode(pass, draw, loop.sampler);
      for (const { group, count } of loop.advances) {
        pass.setPipeline(advance);
        pass.setBindGroup(0, group);
        pass.dispatchWorkgroups(count);
      }
    }
    pass.end();
    const staging = this.copyDrawn(encoder);
    device.gpu.queue.submit([encoder.finish()]);
    this.model.advanced(plan, count);
    return { staging, count };
  }

  /** The plan for some tokens at a position, with the position in its buffer. */
  private stage(length: number, position: number) {
    const { json, device } = this.model;
    const values = new Map(json.sources.map(([symbol]) => [symbol, position]));
    const shapes = json.inputs.map((port) => (port === this.token ? [1, length] : isTensor(port) ? port.shape : null));
    const { plan, numbers } = this.model.find(shapes, values);
    const bindings = this.sequence.bindings(this.model);
    if (isTensor(this.position) && this.model.touches(plan, this.position.buffer)) {
      device.gpu.queue.writeBuffer(bindings.buffers[this.position.buffer] as GPUBuffer, 0, Int32Array.of(position));
    }
    return { plan, numbers, bindings, values };
  }

  /** The draw's plan, with its settings in the parameters. */
  private drawPlan(): PlanJson {
    const { json } = this.sampler;
    const values = new Map(json.sources.map(([symbol, input]) => [symbol, this.numbers[input - 1] as number]));
    const shapes = json.inputs.map((port) => port.shape ?? null);
    const { plan, numbers } = this.sampler.find(shapes, values);
    this.sampler.refresh(plan, numbers);
    return plan;
  }

  /** The sampler bound to the model's logits, token and parameters. */
  private loop(plan: PlanJson, bindings: Bindings, advance: GPUComputePipeline): Loop {
    let loop = this.loops.get(plan);
    if (loop) return loop;
    const own = new Map(this.sampler.states.map(({ number }) => [number, this.own.buffers[number] as GPUBuffer]));
    own.set(
      (this.sampler.json.inputs[LOGITS as number] as Required<Port>).buffer,
      bindings.buffers[this.logits.buffer] as GPUBuffer,
    );
    own.set(this.number(TOKEN as number), bindings.buffers[this.token.buffer] as GPUBuffer);
    const grown: { buffer: GPUBuffer; pairs: [number, number][] }[] = [];
    const growth = this.model.growth(plan) ?? [];
    if (growth.length) grown.push({ buffer: this.model.parameters, pairs: growth });
    if (isTensor(this.position) && this.model.touches(plan, this.position.buffer)) {
      grown.push({ buffer: bindings.buffers[this.position.buffer] as GPUBuffer, pairs: [[0, 1]] });
    }
    const advances: Loop["advances"] = [];
    for (const { buffer, pairs } of grown) {
      const growths = this.model.device.buffer(8 * Math.max(pairs.length, GROWTHS), "growth");
      this.model.device.gpu.queue.writeBuffer(growths, 0, Uint32Array.from(pairs.flat()));
      if (grown.length === 1 && pairs.length <= GROWTHS) {
        own.set(this.number(GROWING as number), growths);
        own.set(this.number(WORDS as number), buffer);
      } else {
        const entries = [growths, buffer].map((each, binding) => ({ binding, resource: { buffer: each } }));
        const group = this.model.device.gpu.createBindGroup({ layout: advance.getBindGroupLayout(0), entries });
        advances.push({ group, count: pairs.length });
      }
    }
    loop = { sampler: new Bindings(this.sampler, own), advances };
    this.loops.set(plan, loop);
    return loop;
  }

  private copyDrawn(encoder: GPUCommandEncoder): Staging {
    const staging = new Staging(this.model.device, 8 * this.language.ring);
    encoder.copyBufferToBuffer(this.state(DRAWN as number), 0, staging.buffer, 0, 8 * this.language.ring);
    return staging;
  }

  private number(id: number): number {
    return this.sampler.states.find((each) => each.id === id)?.number as number;
  }

  private state(id: number): GPUBuffer {
    return this.own.buffers[this.number(id)] as GPUBuffer;
  }
}
