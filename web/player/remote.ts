// The program in a worker, and its face on the page: calls and answers are messages.

import type {
  GenerateOptions,
  Input,
  LoadOptions,
  Message,
  Output,
  Piece,
  Program,
  Progress,
  Report,
  RunOptions,
  Sequence,
} from "./api.ts";
import { PteronError } from "./errors.ts";
import { loadHere, STOPPED } from "./load.ts";
import type { LocalProgram } from "./program.ts";
import { checkedSettings } from "./settings.ts";

type Facts = Pick<Program, "name" | "page" | "methods" | "language" | "labels" | "notes">;
// biome-ignore lint/suspicious/noExplicitAny: what a message holds depends on its name
type Any = any;

/** Answers messages of a page, in the worker. */
export function serve(scope: {
  postMessage(message: unknown): void;
  onmessage: ((event: MessageEvent) => void) | null;
}): void {
  let program: LocalProgram | null = null;
  const sequences = new Map<number, Sequence>();
  const stops = new Map<number, AbortController>();
  let count = 0;
  const of = (sequence: number) => (sequences.get(sequence) ?? program) as Sequence;
  const actions: Record<string, (argument: Any, id: number) => Promise<unknown>> = {
    load: async ({ url, options }, id) => {
      program = await loadHere(url, { ...options, onProgress: (progress) => scope.postMessage({ id, progress }) });
      const { name, page, methods, language, labels, notes } = program;
      return { name, page, methods, language, labels, notes };
    },
    run: async ({ sequence, inputs, options }) => of(sequence).run(inputs, options),
    generate: async ({ sequence, prompt, options }, id) => {
      const stop = new AbortController();
      stops.set(id, stop);
      try {
        for await (const piece of of(sequence).generate(prompt, { ...options, signal: stop.signal })) {
          if (stop.signal.aborted) break;
          scope.postMessage({ id, piece });
        }
      } finally {
        stops.delete(id);
      }
    },
    stop: async (id) => stops.get(id)?.abort(),
    sequence: async () => {
      sequences.set(++count, await (program as LocalProgram).sequence());
      return count;
    },
    reset: async (sequence) => of(sequence).reset(),
    close: async (sequence) => of(sequence).close(),
    free: async (outputs) => (program as LocalProgram).free(outputs),
    data: async () => (program as LocalProgram).data(),
    tokenize: async (text) => (program as LocalProgram).tokenize(text),
    report: async () => (program as LocalProgram).report(),
  };
  scope.onmessage = async ({ data: { id, name, argument } }) => {
    try {
      scope.postMessage({ id, result: await actions[name]?.(argument, id) });
    } catch (error) {
      const { message, code = "gpu" } = error as PteronError;
      scope.postMessage({ id, error: { message, code } });
    }
  };
}

interface Pending {
  resolve(value: Any): void;
  reject(error: Error): void;
  onProgress?: ((progress: Progress) => void) | undefined;
  onPiece?: (piece: Piece) => void;
}

class Connection {
  private readonly worker: Worker;
  private readonly pending = new Map<number, Pending>();
  private count = 0;
  private ended: PteronError | null = null;

  constructor(worker: Worker) {
    this.worker = worker;
    worker.onmessage = ({ data: { id, result, error, progress, piece } }) => {
      const call = this.pending.get(id);
      if (progress) return call?.onProgress?.(progress);
      if (piece) return call?.onPiece?.(piece);
      this.pending.delete(id);
      return error ? call?.reject(new PteronError(error.code, error.message)) : call?.resolve(result);
    };
    worker.onerror = (event) => {
      const error = new PteronError("gpu", `The player's worker failed: ${event.message}`);
      for (const call of this.pending.values()) call.reject(error);
      this.pending.clear();
    };
  }

  call(name: string, argument?: unknown, more: Partial<Pending> = {}): { id: number; done: Promise<Any> } {
    const id = ++this.count;
    if (this.ended) return { id, done: Promise.reject(this.ended) };
    const done = new Promise<Any>((resolve, reject) => {
      this.pending.set(id, { resolve, reject, ...more });
    });
    try {
      this.worker.postMessage({ id, name, argument });
    } catch (error) {
      this.pending.get(id)?.reject(new PteronError("input", `${name}: ${(error as Error).message}`)); // not data
      this.pending.delete(id);
    }
    return { id, done };
  }

  /** End the worker: calls that wait fail, and so do later ones. */
  end(why = "The program is closed."): void {
    this.worker.terminate();
    this.ended ??= new PteronError("stopped", why);
    for (const call of this.pending.values()) call.reject(this.ended);
    this.pending.clear();
  }
}

class RemoteSequence implements Sequence {
  protected readonly connection: Connection;
  private readonly number: number;

  constructor(connection: Connection, number: number) {
    this.connection = connection;
    this.number = number;
  }

  run(inputs: Record<string, Input>, options?: RunOptions): Promise<Record<string, Output>> {
    return this.connection.call("run", { sequence: this.number, inputs, options }).done;
  }

  async *generate(
    prompt: string | number[] | Message[],
    options: GenerateOptions = {},
  ): AsyncGenerator<Piece, void, void> {
    const { signal, ...settings } = checkedSettings(options);
    if (signal?.aborted) return;
    const pieces: Piece[] = [];
    let wake = () => {};
    let isDone = false;
    const onPiece = (piece: Piece) => {
      pieces.push(piece);
      wake();
    };
    const { id, done } = this.connection.call(
      "generate",
      { sequence: this.number, prompt, options: settings },
      { onPiece },
    );
    const stop = () => void this.connection.call("stop", id).done.catch(() => {});
    signal?.addEventListener("abort", stop);
    const ended = done.finally(() => {
      isDone = true;
      wake();
    });
    ended.catch(() => {});
    try {
      while (!isDone || pieces.length) {
        const piece = pieces.shift();
        if (piece) yield piece;
        else await new Promise<void>((resolve) => (wake = resolve));
      }
    } finally {
      signal?.removeEventListener("abort", stop);
      if (!isDone) stop();
      await ended;
    }
  }

  reset(): Promise<void> {
    return this.connection.call("reset", this.number).done;
  }

  close(): Promise<void> {
    return this.connection.call("close", this.number).done;
  }
}

class RemoteProgram extends RemoteSequence implements Program {
  readonly name: string;
  readonly page: string;
  readonly methods: Program["methods"];
  readonly language: Program["language"];
  readonly labels: Program["labels"];
  readonly notes: string[];

  constructor(connection: Connection, facts: Facts) {
    super(connection, 0);
    this.name = facts.name;
    this.page = facts.page;
    this.methods = facts.methods;
    this.language = facts.language;
    this.labels = facts.labels;
    this.notes = facts.notes;
  }

  async sequence(): Promise<Sequence> {
    return new RemoteSequence(this.connection, await this.connection.call("sequence").done);
  }

  free(outputs: Record<string, Output> | Output | Output[]): Promise<void> {
    return this.connection.call("free", outputs).done;
  }

  data(): Promise<unknown> {
    return this.connection.call("data").done;
  }

  tokenize(text: string): Promise<number[]> {
    return this.connection.call("tokenize", text).done;
  }

  report(): Promise<Report> {
    return this.connection.call("report").done;
  }

  override async close(): Promise<void> {
    await super.close();
    this.connection.end();
  }
}

/** Load a program in a worker of its own, which runs this script too. */
export async function loadInWorker(url: string | URL, script: string, options: LoadOptions): Promise<Program> {
  // A worker's script must be of the page's origin, a module that it imports need not.
  const isOwn = new URL(script).origin === location.origin;
  const source = isOwn
    ? script
    : URL.createObjectURL(new Blob([`import ${JSON.stringify(script)};`], { type: "text/javascript" }));
  const worker = new Worker(source, { type: "module", name: "pteron" });
  const connection = new Connection(worker);
  const { onProgress, signal, worker: _, ...settings } = options;
  const stop = () => connection.end(STOPPED);
  signal?.addEventListener("abort", stop);
  if (signal?.aborted) stop();
  try {
    const address = new URL(url, location.href).href;
    return new RemoteProgram(
      connection,
      await connection.call("load", { url: address, options: settings }, { onProgress }).done,
    );
  } catch (error) {
    connection.end();
    throw error;
  } finally {
    signal?.removeEventListener("abort", stop);
  }
}
