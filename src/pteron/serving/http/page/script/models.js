// The models of the server.

import { byId, make } from "./elements.js";
import { listModels } from "./server.js";

export class Models extends EventTarget {
  #list = [];
  #asking = null;
  #askKey;
  error = null; // why the list is empty

  constructor(askKey) {
    super();
    this.#askKey = askKey;
  }

  load() {
    this.#asking ??= this.#load().finally(() => { this.#asking = null; });
    return this.#asking;
  }

  /** { id, context } of the model that answers a conversation, or null before the list is loaded. */
  of(conversation) {
    return this.#list.find(({ id }) => id === conversation.model) ?? this.#list[0] ?? null;
  }

  /** Resolves to the name of the model; rejects if there is none. */
  async nameOf(conversation) {
    if (!this.#list.length) await this.load();
    if (this.error) throw this.error;
    return this.of(conversation).id;
  }

  /** Show the model's name, or a menu if there are several. */
  show(conversation, choose) {
    const place = byId("model");
    const { id } = this.of(conversation) ?? { id: "" };
    const drawn = JSON.stringify([id, this.#list]);
    if (place.dataset.drawn === drawn) return;
    place.dataset.drawn = drawn;
    if (this.#list.length < 2) return place.replaceChildren(id);
    const options = this.#list.map((model) => make("option", { value: model.id, selected: model.id === id }, model.id));
    place.replaceChildren(make("select", { "aria-label": "Model", onchange: (event) => choose(event.target.value) }, options));
  }

  async #load() {
    try {
      this.#list = await listModels();
      this.error = null;
    } catch (error) {
      if (error.needsKey && (await this.#askKey(error.message))) return this.#load();
      this.error = error;
    }
    this.dispatchEvent(new Event("change"));
  }
}
