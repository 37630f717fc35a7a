// Search over operators, nodes, values and constants: results below the field, Enter goes to one after another.

import { byId, make } from "../../shared/elements.ts";
import { familyDot } from "./details.ts";
import type { Page } from "./main.ts";
import type { Delegate, Item } from "./program.ts";

const FOUND_MAX = 200;

/** Nodes and calls whose name, number, values or constants hold the text; a number alone is a node's. */
function findItems(delegate: Delegate, text: string): Item[] {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [];
  const number = /^#?\d+$/.test(wanted) ? Number(wanted.replace("#", "")) : null;
  const value = /^%\d+$/.test(wanted) ? Number(wanted.slice(1)) : null;
  return [...delegate.nodes, ...delegate.calls]
    .filter((item) => {
      if (number !== null) return item.index === number;
      if (value !== null) return item.reads.includes(value) || item.writes.includes(value);
      const { name, family } = delegate.operator(item);
      if (item.key[0] === "c" && !name.startsWith("pteron.")) return false; // its node is found
      return (
        name.toLowerCase().includes(wanted) ||
        family === wanted ||
        item.reads.some((id) => {
          const place = delegate.value(id).constant;
          return place !== null && delegate.record.constants[place].key.toLowerCase().includes(wanted);
        })
      );
    })
    .slice(0, FOUND_MAX);
}

export function listenToSearch(page: Page): void {
  const field = byId<HTMLInputElement>("search");
  const list = byId("found");
  let found: Item[] = [];
  let at = -1;
  const show = () => {
    const { delegate } = page.state;
    if (!delegate) return;
    list.hidden = !field.value.trim();
    list.replaceChildren(
      ...found.map((item, index) =>
        make(
          "li",
          {
            role: "option",
            "aria-selected": String(index === at),
            onpointerdown: (event) => {
              event.preventDefault();
              at = index;
              go();
              list.hidden = true;
            },
          },
          familyDot(delegate.operator(item).family),
          ` ${item.key[0] === "c" ? "call " : ""}#${item.index} ${delegate.operator(item).name}`,
        ),
      ),
    );
    if (!found.length) list.append(make("li.none", "nothing found"));
    list.children[Math.max(0, at)]?.scrollIntoView({ block: "nearest" });
  };
  const go = () => {
    if (!found.length) return;
    const item = found[Math.max(0, at)];
    if (item.key[0] === "c") page.goToCall(item);
    else page.goToNode(item.index);
    show();
    page.say(`${Math.max(0, at) + 1} of ${found.length}`);
  };
  field.addEventListener("input", () => {
    found = page.state.delegate ? findItems(page.state.delegate, field.value) : [];
    at = -1;
    page.mark(found.flatMap((item) => item.nodes));
    show();
    page.say(`${found.length} found`);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      at = found.length
        ? (at + (event.key === "ArrowUp" ? -1 : event.shiftKey ? -1 : 1) + found.length) % found.length
        : -1;
      go();
      if (event.key === "Enter") list.hidden = true; // it may cover the result
    } else if (event.key === "Escape") {
      field.value = "";
      list.hidden = true;
      page.mark([]);
    }
  });
  field.addEventListener("blur", () => {
    list.hidden = true;
  });
  field.addEventListener("focus", () => {
    list.hidden = !field.value.trim();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement?.tagName ?? "")) {
      event.preventDefault();
      field.focus();
    }
  });
}
