// Search over operators, nodes, values and constants: results below the field, Enter goes to one after another.

import { html } from "lit-html";
import { byId } from "../../shared/elements.ts";
import { familyDot } from "./details.ts";
import type { Page } from "./main.ts";
import type { Delegate, Item } from "./program.ts";

const FOUND_MAX = 200;

/** Nodes and calls whose name, number, values or constants hold the text; a number alone is a node's. */
function findItems(delegate: Delegate, wanted: string): Item[] {
  if (!wanted) return [];
  const [, sign, digits] = /^([#%]?)(\d+)$/.exec(wanted) ?? [];
  const number = Number(digits);
  const isFound = (item: Item) => {
    if (sign === "%") return item.reads.includes(number) || item.writes.includes(number);
    if (digits) return item.index === number;
    const { name, family } = delegate.operator(item);
    if (item.kind === "call" && !name.startsWith("pteron.")) return false; // its node is found
    const names = [name, ...delegate.constantsOf(item).map((constant) => constant.key)];
    return family === wanted || names.some((each) => each.toLowerCase().includes(wanted));
  };
  return [...delegate.nodes, ...delegate.calls].filter(isFound).slice(0, FOUND_MAX);
}

export function searchField(page: Page, delegate: Delegate) {
  const { found, foundAt, isSearching } = page.state;
  const textIn = (event: Event) => (event.target as HTMLInputElement).value.trim();
  const show = (event: Event) => page.update({ isSearching: textIn(event) !== "" });
  const hide = () => page.update({ isSearching: false });
  const scrollTo = (index: number) => byId("found").children[index].scrollIntoView({ block: "nearest" });
  const type = (event: Event) => {
    const items = findItems(delegate, textIn(event).toLowerCase());
    const marked = new Set(items.flatMap((item) => item.nodes));
    const isSearching = textIn(event) !== "";
    page.update({ found: items, foundAt: -1, isSearching, marked, spoken: `${items.length} found` });
    scrollTo(0);
  };
  const go = (index: number) => {
    if (!found.length) return;
    page.goTo(found[index]);
    page.update({ foundAt: index, isSearching: true, spoken: `${index + 1} of ${found.length}` });
    scrollTo(index);
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === "Escape") {
      (event.target as HTMLInputElement).value = "";
      page.update({ found: [], marked: new Set(), isSearching: false });
    } else if (["Enter", "ArrowDown", "ArrowUp"].includes(event.key)) {
      event.preventDefault();
      const step = event.key === "ArrowUp" || event.shiftKey ? -1 : 1;
      go((foundAt + step + found.length) % found.length);
      if (event.key === "Enter") hide(); // it may cover the result
    }
  };
  const pick = (event: Event, index: number) => {
    event.preventDefault();
    go(index);
    hide();
  };
  const option = (item: Item, index: number) => {
    const { name, family } = delegate.operator(item);
    const text = `${item.kind === "call" ? "call " : ""}#${item.index} ${name}`;
    const isChosen = index === foundAt;
    return html`
      <li role="option" aria-selected=${isChosen} @pointerdown=${(event: Event) => pick(event, index)}>
        ${familyDot(family)} ${text}</li>`;
  };
  return html`
    <div class="search">
      <input id="search" type="search" placeholder="Search operators, nodes, %values, constants  ( / )"
        aria-label="Search" aria-controls="found" autocomplete="off" spellcheck="false"
        @input=${type} @keydown=${press} @blur=${hide} @focus=${show}>
      <ol id="found" role="listbox" aria-label="Search results" ?hidden=${!isSearching}>
        ${found.length ? found.map(option) : html`<li class="none">nothing found</li>`}
      </ol>
    </div>`;
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || (event.target as Element).matches("input, select, textarea")) return;
  event.preventDefault();
  byId("search").focus();
});
