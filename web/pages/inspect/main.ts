// The page: the state of the selection, and the views to update when it changes.

import { byId, type Child, fill, make } from "../../shared/elements.ts";
import { counted, humanBytes } from "../../shared/text.ts";
import type { Plan } from "./data.ts";
import { blockDetails, familyDot, itemDetails, launchDetails } from "./details.ts";
import { readColours } from "./draw.ts";
import type { Vertex } from "./flow.ts";
import { constantList, launchList, programPanel } from "./lists.ts";
import { memoryPanel } from "./memory.ts";
import { type Block, DELEGATES, type Delegate, type Item, PROGRAM } from "./program.ts";
import { listenToSearch } from "./search.ts";
import { type Anchor, GraphView } from "./view.ts";

export interface State {
  delegate: Delegate | null;
  plan: Plan | null;
  unfolded: Set<string>; // keys of blocks
  withIntegers: boolean;
  withWeights: boolean;
  faded: Set<string>; // families
  marked: Set<number>; // nodes
  chosen: string | null; // the key of a vertex
  item: Item | null;
  launch: number | null;
  constant: number | null;
  tab: string;
  view: number;
}

const TABS = ["Node", "Launches", "Constants", "Program"];
const VIEWS = ["File's graph", "After rewrites", "Both"];

export class Page {
  views: GraphView[] = [];
  readonly state: State = {
    delegate: null,
    plan: null,
    unfolded: new Set(),
    withIntegers: false,
    withWeights: false,
    faded: new Set(),
    marked: new Set(),
    chosen: null,
    item: null,
    launch: null,
    constant: null,
    tab: "Program",
    view: 0,
  };

  constructor() {
    this.setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    this.fillHeader();
    this.listen();
    byId("tools").hidden = DELEGATES.length === 0;
    if (DELEGATES.length) this.chooseDelegate(0);
    this.showPanel();
  }

  fillHeader(): void {
    byId("name").textContent = PROGRAM.name;
    const runs = PROGRAM.problems.length
      ? `does not run here: ${PROGRAM.problems[0]}`
      : `runs here${PROGRAM.adapter ? `, on ${PROGRAM.adapter}` : ""}`;
    byId("summary").textContent = `${humanBytes(PROGRAM.bytes)}, ${PROGRAM.kind} · ${runs}`;
  }

  listen(): void {
    byId("theme").addEventListener("click", () =>
      this.setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
    );
    byId("fit").addEventListener("click", () => this.each((view) => view.fit()));
    byId("in").addEventListener("click", () => this.each((view) => view.zoom(1.25)));
    byId("out").addEventListener("click", () => this.each((view) => view.zoom(0.8)));
    byId("fold").addEventListener("click", () => this.foldAll(this.state.unfolded.size > 0));
    const integers = byId<HTMLInputElement>("integers");
    integers.addEventListener("change", () => {
      this.state.withIntegers = integers.checked;
      this.arrange();
    });
    listenToSearch(this);
  }

  setTheme(theme: string): void {
    document.documentElement.dataset.theme = theme;
    readColours();
    this.redraw();
  }

  // The shown delegate ---------------------------------------------------------------------------

  chooseDelegate(index: number): void {
    const { state } = this;
    const delegate = DELEGATES[index];
    state.delegate = delegate;
    state.plan = delegate.record.plans[0] ?? null;
    Object.assign(state, { chosen: null, item: null, launch: null, constant: null });
    state.marked.clear();
    state.unfolded.clear();
    const isShared = PROGRAM.methods.length === 1;
    fillChoice(
      byId("delegates"),
      "tab",
      DELEGATES.map((each) => (isShared ? "" : `${each.method.name} · `) + each.record.name),
      index,
      (other) => this.chooseDelegate(other),
    );
    this.chooseView(state.view);
    this.fillLegend(delegate);
    this.showMemory();
    this.chooseTab(delegate.nodes.length ? "Launches" : "Program");
  }

  chooseView(index: number): void {
    const { state } = this;
    if (!state.delegate) return;
    const { nodes, calls } = state.delegate;
    state.view = calls.length ? index : 0;
    fillChoice(byId("views"), "radio", calls.length ? VIEWS : VIEWS.slice(0, 1), state.view, (other) =>
      this.chooseView(other),
    );
    const all: [string, Item[]][] = [
      [`File's graph · ${counted(nodes.length, "node")}`, nodes],
      [`After rewrites · ${counted(calls.length, "call")}`, calls],
    ];
    const actions = {
      choose: (vertex: Vertex | null) => this.chooseVertex(vertex),
      toggle: (block: Block, view: GraphView) => this.toggle(block, view),
    };
    this.views = (state.view === 2 ? all : [all[state.view]]).map(
      ([title, items]) => new GraphView(title, items, state, actions),
    );
    byId("panes").replaceChildren(...this.views.map((view) => view.element));
    this.arrange();
  }

  choosePlan(index: number): void {
    this.state.plan = this.state.delegate?.record.plans[index] ?? null;
    this.state.launch = null;
    this.mark([]);
    this.showMemory();
    this.showPanel();
  }

  arrange(anchor: Anchor = null): void {
    const { delegate } = this.state;
    if (!delegate) return;
    this.each((view) => view.arrange(delegate, anchor));
    const { blocks } = delegate;
    byId("fold").hidden = blocks.length === 0;
    byId("fold").textContent = this.state.unfolded.size ? "Fold all" : "Unfold all";
  }

  toggle(block: Block, view: GraphView): void {
    const { delegate, unfolded } = this.state;
    const first = view.items.find((item) => delegate?.blockOf[item.index] === block)?.key ?? "";
    const wasFolded = !unfolded.has(block.key);
    if (wasFolded) unfolded.add(block.key);
    else unfolded.delete(block.key);
    this.arrange(wasFolded ? { from: block.key, to: first } : { from: first, to: block.key });
    this.say(`${block.title} ${wasFolded ? "unfolded" : "folded"}`);
  }

  foldAll(isFolding: boolean): void {
    this.state.unfolded = new Set(isFolding ? [] : this.state.delegate?.blocks.map((block) => block.key));
    this.arrange();
    this.each((view) => view.start());
    this.redraw();
  }

  // The selection ------------------------------------------------------------------------------

  chooseVertex(vertex: Vertex | null): void {
    const { state } = this;
    const item = vertex?.kind === "node" ? vertex.items[0] : null;
    Object.assign(state, { chosen: vertex?.key ?? null, item, launch: null });
    state.marked = new Set(item && (this.views.length > 1 || item.nodes.length > 1) ? item.nodes : []);
    if (vertex && vertex.kind !== "border") this.chooseTab("Node");
    this.say(vertex ? `${vertex.title} ${vertex.subtitle}` : "nothing selected");
    this.redraw();
    this.showMemory();
  }

  goToNode(index: number): void {
    if (this.state.view === 1) this.chooseView(0);
    if (this.state.delegate) this.goTo(this.state.delegate.nodes[index]);
  }

  goToCall(call: Item): void {
    if (this.state.view === 0) this.chooseView(1);
    this.goTo(call);
  }

  goTo(item: Item): void {
    const block = this.state.delegate?.blockOf[item.index];
    if (block && !this.state.unfolded.has(block.key)) {
      this.state.unfolded.add(block.key);
      this.arrange();
    }
    for (const view of this.views) {
      const own = view.layout.boxes.get(item.key)?.vertex;
      if (own) this.chooseVertex(own);
      const vertex = own ?? view.vertexOfNode(item.index);
      if (!vertex) continue;
      if (view.width) view.show(vertex.key);
      else requestAnimationFrame(() => view.show(vertex.key)); // it has just been made
    }
  }

  chooseLaunch(index: number): void {
    const { state } = this;
    const launch = state.plan?.launches[index];
    if (!launch) return;
    Object.assign(state, { launch: index, chosen: null, item: null });
    this.mark(launch.nodes);
    for (const view of this.views) {
      const vertex = view.vertexOfNode(launch.node);
      if (vertex) view.show(vertex.key);
    }
    this.chooseTab("Launches");
    this.showMemory();
    this.say(`launch ${index}, ${PROGRAM.kernels[launch.kernel].name}, ${counted(launch.nodes.length, "node")}`);
  }

  showConstant(index: number | null): void {
    this.state.constant = index;
    this.chooseTab("Constants");
    byId("panel").querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }

  mark(nodes: number[]): void {
    this.state.marked = new Set(nodes);
    this.redraw();
  }

  setWithWeights(isWith: boolean): void {
    this.state.withWeights = isWith;
    this.showMemory();
  }

  // Panels -------------------------------------------------------------------------------

  each(action: (view: GraphView) => void): void {
    for (const view of this.views) action(view);
  }

  redraw(): void {
    this.each((view) => view.draw());
  }

  say(text: string): void {
    byId("spoken").textContent = text;
  }

  showMemory(): void {
    fill(byId("memory"), memoryPanel(this));
  }

  chooseTab(tab: string): void {
    this.state.tab = tab;
    this.showPanel();
  }

  showPanel(): void {
    const { state } = this;
    const tabs = state.delegate?.nodes.length ? TABS : ["Program"];
    fillChoice(byId("tabs"), "tab", tabs, tabs.indexOf(state.tab), (index) => this.chooseTab(tabs[index]));
    const panel = byId("panel");
    const scrolled = panel.dataset.tab === state.tab ? panel.scrollTop : 0;
    panel.dataset.tab = state.tab;
    fill(panel, this.panelContent());
    panel.scrollTop = scrolled;
  }

  panelContent(): Child[] {
    const { state } = this;
    const { delegate, plan } = state;
    const problems = (delegate?.record.problems ?? []).map((problem) => make("p.bad", problem));
    if (state.tab === "Program" || !delegate) return programPanel(this);
    if (state.tab === "Constants") return constantList(this, delegate);
    if (state.tab === "Launches") {
      const chosen = plan &&
        state.launch !== null && [launchDetails(this, delegate, plan, state.launch), make("h4", "All launches")];
      return [problems, chosen || [], launchList(this, delegate)];
    }
    if (state.item) return [problems, itemDetails(this, delegate, state.item)];
    const chosen = this.views.map((view) => view.layout.boxes.get(state.chosen ?? "")?.vertex).find(Boolean);
    if (chosen?.kind === "block") return [problems, blockDetails(delegate, chosen)];
    return [
      problems,
      make(
        "p.quiet",
        "Click a node to see its arguments, neighbours and launches. Click a block to unfold it, and its title to fold it again.",
      ),
    ];
  }

  fillLegend(delegate: Delegate): void {
    const { state } = this;
    const counts = new Map<string, number>();
    for (const node of delegate.nodes) {
      const { family } = delegate.operator(node);
      counts.set(family, (counts.get(family) ?? 0) + 1);
    }
    const families = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    byId("legend").replaceChildren(
      ...families.map(([family, count]) => {
        const button = make(
          "button",
          {
            type: "button",
            "data-family": family,
            "aria-pressed": String(state.faded.has(family)),
            onclick: () => {
              if (!state.faded.delete(family)) state.faded.add(family);
              button.setAttribute("aria-pressed", String(state.faded.has(family)));
              this.redraw();
            },
          },
          familyDot(family),
          `${family} ${count}`,
        );
        return make("li", button);
      }),
    );
  }
}

/** Tabs or choices out of which one is taken, moved between by arrow keys. */
function fillChoice(
  parent: Element,
  role: "tab" | "radio",
  names: string[],
  chosen: number,
  choose: (index: number) => void,
): void {
  const state = role === "tab" ? "aria-selected" : "aria-checked";
  const press = (event: KeyboardEvent, index: number) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    choose((index + step + names.length) % names.length);
    parent.querySelector<HTMLElement>(`[${state}="true"]`)?.focus();
  };
  fill(
    parent,
    names.map((name, index) =>
      make(
        "button",
        {
          type: "button",
          role,
          [state]: String(index === chosen),
          tabindex: index === chosen ? 0 : -1,
          onclick: () => choose(index),
          onkeydown: (event) => press(event, index),
        },
        name,
      ),
    ),
  );
}

Object.assign(window, { page: new Page() }); // for tests
