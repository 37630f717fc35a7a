// The page's state -> all that it shows, as one template.

import { html, nothing } from "lit-html";
import { keyed } from "lit-html/directives/keyed.js";
import { tally } from "../../shared/sums.ts";
import { humanBytes } from "../../shared/text.ts";
import { bad, blockDetails, familyDot, itemDetails, launchDetails, quiet } from "./details.ts";
import { constantList, launchList, programPanel } from "./lists.ts";
import type { Page } from "./main.ts";
import { memoryPanel } from "./memory.ts";
import { DELEGATES, type Delegate, PROGRAM } from "./program.ts";
import { searchField } from "./search.ts";
import type { GraphView } from "./view.ts";

const TABS = ["Node", "Launches", "Constants", "Program"];
const VIEWS = ["File's graph", "After rewrites", "Both"];

export function body(page: Page) {
  const { delegate, tab, spoken } = page.state;
  const { name, bytes, kind, problems, adapter, methods } = PROGRAM;
  const runs = problems.length ? `does not run here: ${problems[0]}` : `runs here${adapter ? `, on ${adapter}` : ""}`;
  const isDark = document.documentElement.dataset.theme === "dark";
  const shown = delegate ? DELEGATES.indexOf(delegate) : -1;
  const names = DELEGATES.map(({ method, record }) => (methods.length > 1 ? `${method.name} · ` : "") + record.name);
  const chooseDelegate = (index: number) => page.chooseDelegate(DELEGATES[index]);
  const tabs = delegate?.nodes.length ? TABS : ["Program"];
  return html`
    <header>
      <div class="program">
        <h1 id="name">${name}</h1>
        <p id="summary">${humanBytes(bytes)}, ${kind} · ${runs}</p>
      </div>
      <nav id="delegates" role="tablist" aria-label="Methods and delegates">
        ${choice("tab", names, shown, chooseDelegate)}
      </nav>
      <button id="theme" type="button" aria-label="Switch between light and dark"
        @click=${() => page.setTheme(isDark ? "light" : "dark")}>◐</button>
    </header>
    ${delegate ? tools(page, delegate) : nothing}
    <main>
      <section class="graphs" aria-label="Graphs">
        <div id="panes">${page.views.map((view) => view.element)}</div>
        <ul id="legend" aria-label="Families of operators: press one to fade it">
          ${delegate ? legend(page, delegate) : nothing}
        </ul>
        <div id="memory" aria-label="Memory over the course of the plan">${memoryPanel(page)}</div>
      </section>
      <aside>
        <div id="tabs" role="tablist" aria-label="Details">
          ${choice("tab", tabs, tabs.indexOf(tab), (index) => page.update({ tab: tabs[index] }))}
        </div>
        ${keyed(tab, html`<div id="panel" role="tabpanel" tabindex="0">${panel(page)}</div>`)}
      </aside>
    </main>
    <p id="spoken" class="unseen" role="status" aria-live="polite">${spoken}</p>`;
}

function tools(page: Page, delegate: Delegate) {
  const { view, unfolded, withIntegers } = page.state;
  const isUnfolded = unfolded.size > 0;
  const each = (action: (view: GraphView) => void) => () => page.views.forEach(action);
  const setIntegers = () => {
    page.state.withIntegers = !withIntegers;
    page.arrange();
  };
  return html`
    <div class="tools" id="tools" role="toolbar" aria-label="Graph">
      <div class="choice" id="views" role="radiogroup" aria-label="Which graph">
        ${choice("radio", delegate.calls.length ? VIEWS : VIEWS.slice(0, 1), view, (index) => page.chooseView(index))}
      </div>
      ${searchField(page, delegate)}
      <button id="fold" type="button" ?hidden=${!delegate.blocks.length} @click=${() => page.foldAll(isUnfolded)}>
        ${isUnfolded ? "Fold all" : "Unfold all"}</button>
      <button id="fit" type="button" title="Fit the graph into the window (0)" @click=${each((view) => view.fit())}>
        Fit</button>
      <button id="out" type="button" aria-label="Zoom out" title="Zoom out (-)"
        @click=${each((view) => view.zoom(0.8))}>−</button>
      <button id="in" type="button" aria-label="Zoom in" title="Zoom in (+)"
        @click=${each((view) => view.zoom(1.25))}>+</button>
      <label class="check">
        <input id="integers" type="checkbox" .checked=${withIntegers} @change=${setIntegers}> live integers</label>
    </div>`;
}

function legend(page: Page, delegate: Delegate) {
  const { faded } = page.state;
  return tally(delegate.nodes, (node) => delegate.operator(node).family).map(([family, count]) => {
    const toggle = () => {
      if (!faded.delete(family)) faded.add(family);
      page.update();
    };
    return html`
      <li><button type="button" data-family=${family} aria-pressed=${faded.has(family)} @click=${toggle}>
        ${familyDot(family)}${family} ${count}</button></li>`;
  });
}

function panel(page: Page) {
  const { delegate, plan, tab, launch, item, chosen } = page.state;
  if (tab === "Program" || !delegate) return programPanel(page);
  if (tab === "Constants") return constantList(page, delegate);
  const problems = delegate.record.problems.map(bad);
  if (tab === "Launches") {
    const details = plan && launch !== null ? launchDetails(page, delegate, plan, launch) : nothing;
    return [problems, details, launchList(page, delegate)];
  }
  if (item) return [problems, itemDetails(page, delegate, item)];
  const vertex = page.views.map((view) => view.layout.boxes.get(chosen ?? "")?.vertex).find(Boolean);
  if (vertex?.kind === "block") return [problems, blockDetails(delegate, vertex)];
  const hint = html`
    Click a node to see its arguments, neighbours and launches. Click a block to unfold it, and its title to fold it
    again.`;
  return [problems, quiet(hint)];
}

/** Tabs or choices out of which one is taken, moved between by arrow keys. */
function choice(role: "tab" | "radio", names: string[], chosen: number, choose: (index: number) => void) {
  const press = (event: KeyboardEvent, index: number) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const next = (index + step + names.length) % names.length;
    const parent = (event.currentTarget as Element).parentElement as Element;
    choose(next);
    (parent.children[next] as HTMLElement).focus();
  };
  return names.map((name, index) => {
    const isChosen = index === chosen;
    return html`
      <button type="button" role=${role} tabindex=${isChosen ? 0 : -1} @click=${() => choose(index)}
        aria-selected=${role === "tab" ? isChosen : nothing} aria-checked=${role === "radio" ? isChosen : nothing}
        @keydown=${(event: KeyboardEvent) => press(event, index)}>${name}</button>`;
  });
}
