// The page: the selected conversation, the user's actions, and when to draw.

import { byId, icon, newId } from "../../shared/elements.ts";
import { type Answer, Answers, isInOtherTab, STALE_AFTER } from "./answers.ts";
import { askKey } from "./api_key.ts";
import type { Attachment } from "./attachments.ts";
import { Composer } from "./composer.ts";
import { lastToDrop, splitPath } from "./context.ts";
import { Drawers } from "./drawers.ts";
import { download, fromJson, toMarkdown } from "./export.ts";
import { Models } from "./models.ts";
import { notice } from "./notices.ts";
import { sayProgress } from "./screen_reader.ts";
import { Settings } from "./settings.ts";
import { Sidebar, titleOf } from "./sidebar.ts";
import { showContext, showHint } from "./status_line.ts";
import { blank, type Conversation, Store } from "./store.ts";
import { offerThemes } from "./theme.ts";
import { Thread } from "./thread.ts";
import { append, branchAt, isEmpty, newestLeaf, pathOf } from "./tree.ts";

export { renderMarkdown } from "../../shared/markdown.ts"; // for tests

const store = new Store();
const models = new Models(askKey);
const answers = new Answers(store, (conversation) => models.find(conversation), askKey);
const drawers = new Drawers();
const thread = new Thread({
  edit,
  regenerate,
  choose,
  sendResults,
  goOn,
  restore: () => set({ dropped: null }),
  startAnew,
  tryNow: () => answers.of(current)?.tryNow(),
});
const sidebar = new Sidebar({ rename, remove });
const composer = new Composer({ send, stop: () => answers.stop(current), editLast: () => thread.editLast() });
const settings = new Settings({ change, set, save, load, close: () => drawers.close() });

let draft = blank(); // stored with its first message or setting
let current = draft.id;

const conversation = () => store.get(current) ?? draft;
const isAnsweredElsewhere = () => !answers.of(current) && conversation().messages.some(isInOtherTab);

/** Select a conversation; null or an unknown id: a new one, with the last one's model. */
function select(id: string | null, fresh = { ...blank(), model: store.all()[0]?.model ?? null }): void {
  if (id && store.get(id)) current = id;
  else {
    draft = fresh;
    current = draft.id;
    if (location.hash) history.replaceState(null, "", location.pathname + location.search);
  }
  drawers.closeIfOver();
  draw();
}

/** Edit the selected conversation; a new one is stored first. */
function change(edit: (conversation: Conversation) => void): void {
  if (!store.get(current)) {
    store.put(draft);
    history.replaceState(null, "", `#${current}`);
  }
  store.change(current, (stored) => void edit(stored));
}

function set(fields: Partial<Conversation>): void {
  change((stored) => Object.assign(stored, fields));
}

function ask(): void {
  thread.toEnd();
  answers.start(current);
}

function send(text: string, attachments: Attachment[]): void {
  change((stored) => {
    append(stored, { id: newId(), role: "user", text, attachments });
    stored.changed = Date.now();
  });
  ask();
}

/** Send another text instead of a message's, with its attachments, as a new branch. */
function edit(id: string, text: string): void {
  if (answers.of(current)) return;
  change((stored) => {
    const before = stored.messages.find((message) => message.id === id);
    branchAt(stored, id);
    append(stored, { id: newId(), role: "user", text, attachments: before?.attachments });
  });
  ask();
}

/** Answer again, as a new branch. */
function regenerate(id: string): void {
  if (answers.of(current)) return;
  change((stored) => branchAt(stored, id));
  ask();
}

/** Show the branch of a message. */
function choose(id: string): void {
  set({ leaf: newestLeaf(conversation(), id) });
}

/** Answer the tool calls of a message. */
function sendResults(id: string, results: string[]): void {
  const calls = conversation().messages.find((message) => message.id === id)?.calls ?? [];
  change((stored) => {
    for (const [index, text] of results.entries())
      append(stored, { id: newId(), role: "tool", text, call: calls[index].id });
  });
  ask();
}

/** Drop the oldest turns; a question that did not fit is sent again. */
function goOn(): void {
  const { sent } = splitPath(conversation());
  const [last, answer] = [lastToDrop(sent), sent.at(-1)];
  if (!last || !answer) return;
  set({ dropped: { last, at: answer.id } });
  if (isEmpty(answer)) regenerate(answer.id);
  else composer.focus();
}

/** A new conversation with the same model and settings. */
function startAnew(): void {
  const { model, system, tools, settings } = conversation();
  if (store.get(current)) history.pushState(null, "", location.pathname + location.search);
  select(null, { ...blank(), model, system, tools, settings });
  composer.focus();
}

/** Download the conversation. */
function save(format: "md" | "json"): void {
  const shown = conversation();
  const text = format === "md" ? toMarkdown(titleOf(shown), pathOf(shown)) : JSON.stringify(shown, null, 2);
  download(`${titleOf(shown)}.${format}`, text);
}

async function load(file: File): Promise<void> {
  const imported = fromJson(await file.text());
  if (!imported) return notice(`${file.name} is not a conversation that was exported here.`);
  store.put(imported);
  location.hash = imported.id;
}

function rename(id: string, title: string | null): void {
  if (title !== null) store.change(id, (stored) => Object.assign(stored, { title }));
  draw();
}

function remove(id: string): void {
  const removed = store.get(id);
  if (!removed) return;
  answers.stop(id);
  store.remove(id);
  if (id === current) select(null);
  notice(`“${titleOf(removed)}” is deleted.`, [
    "Undo",
    () => {
      const messages = removed.messages.map((message) =>
        message.state === "streaming" ? { ...message, state: "interrupted" as const } : message,
      );
      store.put({ ...removed, messages });
      location.hash = id;
    },
  ]);
}

let isDue = false;

/** Draw everything in the next frame. */
function draw(): void {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    show();
  });
}

function show(): void {
  if (current !== draft.id && !store.get(current)) return select(null); // another tab deleted it
  const shown = conversation();
  const answer = answers.of(current);
  const model = models.of(shown);
  const isBlocked = isAnsweredElsewhere();
  document.title = `${titleOf(shown)} · Pteron`;
  byId("title").textContent = titleOf(shown);
  models.show(shown, (id) => set({ model: id }));
  thread.show(shown, answer, answer !== null || isBlocked, model?.id);
  composer.show(current, model, answer !== null, isBlocked);
  settings.show(shown);
  sidebar.show(store.all(), current, ({ id, messages }) => answers.of(id) !== null || messages.some(isInOtherTab));
  showHint(models.error, isBlocked, () => models.load());
  showContext(shown, model);
  if (isBlocked) setTimeout(draw, STALE_AFTER);
}

let growing = 0;

answers.addEventListener("progress", (event) => {
  const answer = (event as CustomEvent<Answer>).detail;
  if (answer.conversationId === current) sayProgress(answer);
  if (answers.of(current) !== answer) return draw();
  if (growing) return;
  growing = requestAnimationFrame(() => {
    growing = 0;
    if (answers.of(current) === answer) thread.grow(conversation(), answer);
  });
});
store.addEventListener("change", draw);
store.addEventListener("unsaved", () =>
  notice(
    "The browser's storage is full or disabled: this conversation is lost when you leave the page. Delete others to make room.",
  ),
);
models.addEventListener("change", draw);
window.addEventListener("hashchange", () => select(location.hash.slice(1)));
window.addEventListener("focus", () => {
  if (models.error) models.load();
});
window.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || byId<HTMLDialogElement>("key").open) return;
  if (drawers.isOver) drawers.close();
  else answers.stop(current);
});
byId("new").prepend(icon("plus"));
byId("latest").append(icon("down"));
byId("new").addEventListener("click", () => {
  if (store.get(current)) history.pushState(null, "", location.pathname + location.search);
  select(null);
  composer.focus();
});

offerThemes();
select(location.hash.slice(1));
models.load();
if (matchMedia("(hover: hover)").matches) composer.focus(); // not on phones, where it would open the keyboard
