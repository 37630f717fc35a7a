// The panels at the sides: the list of conversations on narrow screens, and the settings. One is open at a time;
// Escape or a click beside it closes it. The rest of the page is inert while a panel covers it.

import { byId, icon } from "../../shared/elements.ts";

const NARROW = matchMedia("(max-width: 820px)"); // as in layout.css
const TIGHT = matchMedia("(max-width: 1180px)");

const NAMES = ["side", "settings"] as const;
type Name = (typeof NAMES)[number];

export class Drawers {
  #open: Name | null = null;
  #parts = { side: byId("side"), settings: byId("settings") };
  #buttons = { side: byId("side-open"), settings: byId("settings-open") };

  constructor() {
    this.#buttons.side.append(icon("menu"));
    this.#buttons.settings.append(icon("sliders"));
    byId("side-close").append(icon("close"));
    byId("side-close").addEventListener("click", () => this.close());
    for (const name of NAMES) this.#buttons[name].addEventListener("click", () => this.#toggle(name));
    byId("shade").addEventListener("click", () => this.close());
    for (const query of [NARROW, TIGHT]) query.addEventListener("change", () => this.#show());
    this.#show();
  }

  get isOver(): boolean {
    return this.#open !== null && (this.#open === "side" ? NARROW : TIGHT).matches;
  }

  close(): void {
    const name = this.#open;
    if (!name) return;
    const hadFocus = this.#parts[name].contains(document.activeElement);
    this.#open = null;
    this.#show();
    if (hadFocus) this.#buttons[name].focus();
  }

  /** After a choice in the list. */
  closeIfOver(): void {
    if (this.isOver) this.close();
  }

  #toggle(name: Name): void {
    if (this.#open === name) return this.close();
    this.#open = name;
    this.#show();
    this.#parts[name].querySelector<HTMLElement>("button, a, input, textarea")?.focus();
  }

  #show(): void {
    const { isOver } = this;
    for (const name of NAMES) {
      const part = this.#parts[name];
      const isOpen = this.#open === name;
      part.classList.toggle("open", isOpen);
      part.inert = isOver && !isOpen;
      this.#buttons[name].setAttribute("aria-expanded", String(isOpen));
    }
    this.#parts.settings.hidden = this.#open !== "settings";
    byId("main").inert = isOver;
    byId("shade").hidden = !isOver;
  }
}
