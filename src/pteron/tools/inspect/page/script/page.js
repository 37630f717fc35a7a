// The page: the state of the selection, and the views to update when it changes.
"use strict";

const TABS = ["Node", "Launches", "Constants", "Program"];
const VIEWS = ["File's graph", "After rewrites", "Both"];

class Page {
  constructor() {
    this.state = {
      delegate: null, plan: null, unfolded: new Set(), withIntegers: false, withWeights: false, faded: new Set(),
      marked: new Set(), chosen: null, item: null, launch: null, constant: null, tab: "Program", view: 0,
    };
    this.views = [];
    this.setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    this.fillHeader();
    this.listen();
    byId("tools").hidden = DELEGATES.length === 0;
    if (DELEGATES.length) this.chooseDelegate(0);
    this.showPanel();
  }

  fillHeader() {
    byId("name").textContent = PROGRAM.name;
    const runs = PROGRAM.problems.length ? `does not run here: ${PROGRAM.problems[0]}` : `runs here${PROGRAM.adapter ? `, on ${PROGRAM.adapter}` : ""}`;
    byId("summary").textContent = `${humanBytes(PROGRAM.bytes)}, ${PROGRAM.kind} · ${runs}`;
  }

  listen() {
    byId("theme").addEventListener("click", () => this.setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
    byId("fit").addEventListener("click", () => this.views.forEach((view) => view.fit()));
    byId("in").addEventListener("click", () => this.views.forEach((view) => view.zoom(1.25)));
    byId("out").addEventListener("click", () => this.views.forEach((view) => view.zoom(0.8)));
    byId("fold").addEventListener("click", () => this.foldAll(this.state.unfolded.size > 0));
    byId("integers").addEventListener("change", (event) => { this.state.withIntegers = event.target.checked; this.arrange(); });
    listenToSearch(this);
  }

  setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    readColours();
    this.redraw();
  }

  // The shown delegate ---------------------------------------------------------------------------

  chooseDelegate(index) {
    const { state } = this;
    state.delegate = DELEGATES[index];
    state.plan = state.delegate.record.plans[0] ?? null;
    Object.assign(state, { chosen: null, item: null, launch: null, constant: null });
    state.marked.clear();
    state.unfolded.clear();
    const isShared = PROGRAM.methods.length === 1;
    fillChoice(byId("delegates"), "tab", DELEGATES.map((each) => (isShared ? "" : `${each.method.name} · `) + each.record.name), index, (other) => this.chooseDelegate(other));
    this.chooseView(state.view);
    this.fillLegend();
    this.showMemory();
    this.chooseTab(state.delegate.nodes.length ? "Launches" : "Program");
  }

  chooseView(index) {
    const { state } = this;
    state.view = state.delegate.calls.length ? index : 0;
    fillChoice(byId("views"), "radio", state.delegate.calls.length ? VIEWS : VIEWS.slice(0, 1), state.view, (other) => this.chooseView(other));
    const { nodes, calls } = state.delegate;
    const all = [
      [`File's graph · ${counted(nodes.length, "node")}`, nodes],
      [`After rewrites · ${counted(calls.length, "call")}`, calls],
    ];
    const actions = {
      choose: (vertex) => this.chooseVertex(vertex),
      toggle: (block, view) => this.toggle(block, view),
    };
    this.views = (state.view === 2 ? all : [all[state.view]]).map(([title, items]) => new GraphView(title, items, state, actions));
    byId("panes").replaceChildren(...this.views.map((view) => view.element));
    this.arrange();
  }

  choosePlan(index) {
    this.state.plan = this.state.delegate.record.plans[index];
    this.state.launch = null;
    this.mark([]);
    this.showMemory();
    this.showPanel();
  }

  arrange(anchor = null) {
    for (const view of this.views) view.arrange(anchor);
    const { blocks } = this.state.delegate;
    byId("fold").hidden = blocks.length === 0;
    byId("fold").textContent = this.state.unfolded.size ? "Fold all" : "Unfold all";
  }

  toggle(block, view) {
    const { unfolded } = this.state;
    const first = view.items.find((item) => this.state.delegate.blockOf[item.index] === block).key;
    const wasFolded = !unfolded.has(block.key);
    if (wasFolded) unfolded.add(block.key);
    else unfolded.delete(block.key);
    this.arrange(wasFolded ? { from: block.key, to: first } : { from: first, to: block.key });
    this.say(`${block.title} ${wasFolded ? "unfolded" : "folded"}`);
  }

  foldAll(isFolding) {
    this.state.unfolded = new Set(isFolding ? [] : this.state.delegate.blocks.map((block) => block.key));
    this.arrange();
    for (const view of this.views) view.start();
    this.redraw();
  }

  // The selection ------------------------------------------------------------------------------

  chooseVertex(vertex) {
    const { state } = this;
    const item = vertex?.kind === "node" ? vertex.items[0] : null;
    Object.assign(state, { chosen: vertex?.key ?? null, item, launch: null });
    state.marked = new Set(this.views.length > 1 || item?.nodes.length > 1 ? item?.nodes ?? [] : []);
    if (vertex && vertex.kind !== "border") this.chooseTab("Node");
    this.say(vertex ? `${vertex.title} ${vertex.subtitle}` : "nothing selected");
    this.redraw();
    this.showMemory();
  }

  goToNode(index) {
    if (this.state.view === 1) this.chooseView(0);
    this.goTo(this.state.delegate.nodes[index]);
  }

  goToCall(call) {
    if (this.state.view === 0) this.chooseView(1);
    this.goTo(call);
  }

  goTo(item) {
    const block = this.state.delegate.blockOf[item.index];
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

  chooseLaunch(index) {
    const { state } = this;
    const launch = state.plan.launches[index];
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

  showConstant(index) {
    this.state.constant = index;
    this.chooseTab("Constants");
    byId("panel").querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }

  mark(nodes) {
    this.state.marked = new Set(nodes);
    this.redraw();
  }

  setWithWeights(isWith) {
    this.state.withWeights = isWith;
    this.showMemory();
  }

  // Panels -------------------------------------------------------------------------------

  redraw() { this.views?.forEach((view) => view.draw()); }

  say(text) { byId("spoken").textContent = text; }

  showMemory() { byId("memory").replaceChildren(...memoryPanel(this)); }

  chooseTab(tab) {
    this.state.tab = tab;
    this.showPanel();
  }

  showPanel() {
    const { state } = this;
    const tabs = state.delegate?.nodes.length ? TABS : ["Program"];
    fillChoice(byId("tabs"), "tab", tabs, tabs.indexOf(state.tab), (index) => this.chooseTab(tabs[index]));
    const panel = byId("panel");
    const scrolled = panel.dataset.tab === state.tab ? panel.scrollTop : 0;
    panel.dataset.tab = state.tab;
    panel.replaceChildren(...this.panelContent().flat(Infinity));
    panel.scrollTop = scrolled;
  }

  panelContent() {
    const { state } = this;
    const problems = (state.delegate?.record.problems ?? []).map((problem) => make("p", { class: "bad" }, problem));
    if (state.tab === "Program" || !state.delegate) return [programPanel(this)];
    if (state.tab === "Constants") return [constantList(this)];
    if (state.tab === "Launches") return [problems, state.launch === null ? [] : [launchDetails(this, state.launch), make("h4", {}, "All launches")], launchList(this)];
    if (state.item) return [problems, itemDetails(this, state.item)];
    const chosen = this.views.map((view) => view.layout.boxes.get(state.chosen)?.vertex).find(Boolean);
    if (chosen?.kind === "block") return [problems, blockDetails(this, chosen)];
    return [problems, make("p", { class: "quiet" }, "Click a node to see its arguments, neighbours and launches. Click a block to unfold it, and its title to fold it again.")];
  }

  fillLegend() {
    const { state } = this;
    const counts = new Map();
    for (const node of state.delegate.nodes) {
      const { family } = state.delegate.operator(node);
      counts.set(family, (counts.get(family) ?? 0) + 1);
    }
    const families = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    byId("legend").replaceChildren(...families.map(([family, count]) => {
      const button = make("button", { type: "button", "data-family": family, "aria-pressed": String(state.faded.has(family)), onclick: () => {
        if (!state.faded.delete(family)) state.faded.add(family);
        button.setAttribute("aria-pressed", String(state.faded.has(family)));
        this.redraw();
      } }, familyDot(family), `${family} ${count}`);
      return make("li", {}, button);
    }));
  }
}

window.page = new Page();
