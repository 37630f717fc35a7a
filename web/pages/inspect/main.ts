// The page: the state of the selection, and what changes it.

import { render } from "lit-html";
import { byId } from "../../shared/elements.ts";
import { counted } from "../../shared/text.ts";
import { body } from "./body.ts";
import type { Plan } from "./data.ts";
import { readColours } from "./draw.ts";
import type { Vertex } from "./flow.ts";
import { type Block, DELEGATES, type Delegate, type Item, PROGRAM } from "./program.ts";
import { GraphView } from "./view.ts";

export type State = Page["state"];

export class Page {
  views: GraphView[] = [];
  readonly state = {
    delegate: null as Delegate | null,
    plan: null as Plan | null,
    unfolded: new Set<string>(), // keys of blocks
    withIntegers: false,
    withWeights: false,
    withSource: false,
    faded: new Set<string>(), // families
    marked: new Set<number>(), // nodes
    chosen: null as string | null, // the key of a vertex
    item: null as Item | null,
    launch: null as number | null,
    constant: null as number | null,
    found: [] as Item[],
    foundAt: -1,
    isSearching: false,
    tab: "Program",
    view: 0,
    spoken: "",
  };

  constructor() {
    this.setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    if (DELEGATES.length) this.chooseDelegate(DELEGATES[0]);
  }

  setTheme(theme: string): void {
    document.documentElement.dataset.theme = theme;
    readColours();
    this.update();
  }

  /** Change the state, and show it. */
  update(changes: Partial<State> = {}): void {
    Object.assign(this.state, changes);
    for (const view of this.views) view.draw();
    render(body(this), document.body);
  }

  // The shown delegate ---------------------------------------------------------------------------

  chooseDelegate(delegate: Delegate): void {
    const chosen = { chosen: null, item: null, launch: null, constant: null, marked: new Set<number>() };
    const tab = delegate.nodes.length ? "Launches" : "Program";
    const plan = delegate.record.plans[0] ?? null;
    Object.assign(this.state, { ...chosen, delegate, plan, tab, unfolded: new Set() });
    this.chooseView(this.state.view);
  }

  chooseView(index: number): void {
    if (!this.state.delegate) return;
    const { nodes, calls } = this.state.delegate;
    const view = calls.length ? index : 0;
    const graphs = [
      { title: `File's graph · ${counted(nodes.length, "node")}`, items: nodes },
      { title: `After rewrites · ${counted(calls.length, "call")}`, items: calls },
    ];
    this.state.view = view;
    this.views = (view === 2 ? graphs : [graphs[view]]).map(({ title, items }) => new GraphView(title, items, this));
    this.arrange();
  }

  choosePlan(plan: Plan): void {
    this.update({ plan, launch: null, marked: new Set() });
  }

  arrange(from = "", to = ""): void {
    for (const view of this.views) if (this.state.delegate) view.arrange(this.state.delegate, from, to);
    this.update();
  }

  toggle(block: Block, view: GraphView): void {
    const { delegate, unfolded } = this.state;
    const first = view.items.find((item) => delegate?.blockOf[item.index] === block)?.key ?? "";
    const wasUnfolded = unfolded.delete(block.key);
    if (!wasUnfolded) unfolded.add(block.key);
    this.state.spoken = `${block.title} ${wasUnfolded ? "folded" : "unfolded"}`;
    this.arrange(...(wasUnfolded ? [first, block.key] : [block.key, first]));
  }

  foldAll(isFolding: boolean): void {
    this.state.unfolded = new Set(isFolding ? [] : this.state.delegate?.blocks.map((block) => block.key));
    this.arrange();
    for (const view of this.views) view.start();
  }

  // The selection ------------------------------------------------------------------------------

  chooseVertex(vertex?: Vertex): void {
    const item = vertex?.kind === "node" ? vertex.items[0] : null;
    const marked = item && (this.views.length > 1 || item.nodes.length > 1) ? item.nodes : [];
    const tab = vertex && vertex.kind !== "border" ? "Node" : this.state.tab;
    const spoken = vertex ? `${vertex.title} ${vertex.subtitle}` : "nothing selected";
    this.update({ chosen: vertex?.key ?? null, item, launch: null, marked: new Set(marked), tab, spoken });
  }

  /** Choose a node or call, in the graph that it is of. */
  goTo(item: Item): void {
    const other = item.kind === "node" ? 1 : 0;
    if (this.state.view === other) this.chooseView(1 - other);
    const block = this.state.delegate?.blockOf[item.index];
    if (block && !this.state.unfolded.has(block.key)) {
      this.state.unfolded.add(block.key);
      this.arrange();
    }
    for (const view of this.views) {
      const own = view.layout.boxes.get(item.key)?.vertex;
      if (own) this.chooseVertex(own);
      view.show((own ?? view.vertexOfNode(item.index))?.key ?? "");
    }
  }

  chooseLaunch(index: number): void {
    const launch = this.state.plan?.launches[index];
    if (!launch) return;
    const spoken = `launch ${index}, ${PROGRAM.kernels[launch.kernel].name}, ${counted(launch.nodes.length, "node")}`;
    const chosen = { launch: index, chosen: null, item: null, marked: new Set(launch.nodes), withSource: false };
    this.update({ ...chosen, tab: "Launches", spoken });
    for (const view of this.views) view.show(view.vertexOfNode(launch.node)?.key ?? "");
  }

  showConstant(constant: number | null): void {
    this.update({ constant, tab: "Constants" });
    byId("panel").querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }
}

Object.assign(window, { page: new Page() }); // for tests
