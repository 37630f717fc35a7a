// The models of the server.

import { byId, make } from "../../shared/elements.ts";
import type { AskKey } from "./answers.ts";
import { listModels, type Model, Refused } from "./server.ts";
import type { Conversation } from "./store.ts";

export class Models extends EventTarget {
  #list: Model[] = [];
  #asking: Promise<void> | null = null;
  error: Refused | null = null; // why the list is empty

  constructor(private askKey: AskKey) {
    super();
  }

  load(): Promise<void> {
    this.#asking ??= this.#load().finally(() => {
      this.#asking = null;
    });
    return this.#asking;
  }

  /** The model that answers a conversation, or null before the list is loaded. */
  of(conversation: Conversation): Model | null {
    return this.#list.find(({ id }) => id === conversation.model) ?? this.#list[0] ?? null;
  }

  /** Resolves to the model that answers; rejects if there is none. One that the server has not loaded lacks its
   * context, so that the list is loaded again. */
  async find(conversation: Conversation): Promise<Model> {
    if (!this.of(conversation)?.context) await this.load();
    const model = this.of(conversation);
    if (!model) throw this.error ?? new Refused("The server has no model.");
    return model;
  }

  /** Show the model's name, or a menu if there are several. */
  show(conversation: Conversation, choose: (id: string) => void): void {
    const place = byId("model");
    const id = this.of(conversation)?.id ?? "";
    const drawn = JSON.stringify([id, this.#list]);
    if (place.dataset.drawn === drawn) return;
    place.dataset.drawn = drawn;
    if (this.#list.length < 2) return place.replaceChildren(id);
    const options = this.#list.map((model) => make("option", { value: model.id, selected: model.id === id }, model.id));
    const select = make("select", { "aria-label": "Model", onchange: () => choose(select.value) }, options);
    place.replaceChildren(select);
  }

  async #load(): Promise<void> {
    try {
      this.#list = await listModels();
      this.error = null;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (error.needsKey && (await this.askKey(error.message))) return this.#load();
      this.error = error;
    }
    this.dispatchEvent(new Event("change"));
  }
}
