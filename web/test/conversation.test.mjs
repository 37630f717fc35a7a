import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { append, branchAt, branchesOf, newestLeaf, pathOf } = await load("pages/chat/tree.ts");
const { isFull, lastToDrop, splitPath } = await load("pages/chat/context.ts");
const { addDelta, endThinking, prettyArguments } = await load("pages/chat/delta.ts");
const { requestBody } = await load("pages/chat/request.ts");
const { fromJson } = await load("pages/chat/export.ts");
const { textOf } = await load("pages/chat/attachments.ts");

const message = (id, role, text = id, more = {}) => ({ id, role, text, ...more });
const ids = (messages) => messages.map(({ id }) => id).join(" ");

/** A conversation of one branch. */
function conversation(...messages) {
  const made = { messages: [], leaf: null, dropped: null, system: "", tools: "", settings: {} };
  for (const each of messages) append(made, each);
  return made;
}

const chat = () =>
  conversation(message("q1", "user"), message("a1", "assistant"), message("q2", "user"), message("a2", "assistant"));

test("a message that is edited begins a branch, and the others stay reachable", () => {
  const tree = chat();
  branchAt(tree, "q2");
  assert.equal(ids(pathOf(tree)), "q1 a1");
  append(tree, message("q3", "user"));
  append(tree, message("a3", "assistant"));
  branchAt(tree, "q1");
  append(tree, message("q4", "user"));
  assert.equal(ids(pathOf(tree)), "q4");
  assert.equal(ids(branchesOf(tree, pathOf(tree)[0])), "q1 q4");
  tree.leaf = newestLeaf(tree, "q1");
  assert.equal(ids(pathOf(tree)), "q1 a1 q3 a3");
  assert.equal(ids(branchesOf(tree, pathOf(tree)[2])), "q2 q3");
  tree.leaf = newestLeaf(tree, "q2");
  assert.equal(ids(pathOf(tree)), "q1 a1 q2 a2");
  assert.equal(ids(pathOf(conversation())), "");
});

test("the newest leaf of a long branch is found", () => {
  const questions = Array.from({ length: 20_000 }, (_, at) => message(`q${at}`, "user"));
  assert.equal(newestLeaf(conversation(...questions), "q0"), "q19999");
});

const imported = (messages, more = {}) => fromJson(JSON.stringify({ version: 1, messages, ...more }));

test("imported messages are a tree", () => {
  const twice = imported([
    message("a", "user", "1", { parent: null }),
    message("a", "user", "2", { parent: "a" }),
    message("b", "assistant", "3", { parent: "c" }),
    message("c", "user", "4", { parent: "b" }),
  ]);
  assert.equal(ids(twice.messages), "a b c");
  assert.equal(ids(pathOf(twice)), "a b c");
  assert.equal(newestLeaf(twice, "a"), "c");
  assert.equal(pathOf(imported([message("", "user", "1", { parent: null })])).length, 1);
});

test("imported tools are checked", () => {
  assert.equal(imported([], { tools: '[{"type": "function"}]' }).tools, '[{"type": "function"}]');
  for (const tools of ["{", "{}", 7]) assert.equal(imported([], { tools }), null);
});

test("an answer that failed is replaced, unless something follows it", () => {
  const failed = conversation(message("q1", "user"), message("a1", "assistant", ""));
  branchAt(failed, "a1");
  assert.deepEqual([ids(failed.messages), failed.leaf], ["q1", "q1"]);
  const followed = conversation(message("q1", "user"), message("a1", "assistant", ""), message("q2", "user"));
  branchAt(followed, "a1");
  assert.equal(ids(followed.messages), "q1 a1 q2");
});

test("whole turns are dropped until a third of the characters is free", () => {
  const turns = (...sizes) =>
    sizes.flatMap((size, at) => [message(`q${at}`, "user", "x"), message(`a${at}`, "assistant", "x".repeat(size - 1))]);
  assert.equal(lastToDrop(turns(10, 10, 10)), "a0");
  assert.equal(lastToDrop(turns(10, 10, 10, 10)), "a1");
  assert.equal(lastToDrop(turns(50, 10, 10)), "a0");
  assert.equal(lastToDrop(turns(10, 90)), "a1"); // nothing of this is left
  assert.equal(lastToDrop(turns(10)), "a0");
  assert.equal(lastToDrop([]), null);
  const question = [message("q", "user", "x".repeat(900)), message("a", "assistant", "")];
  assert.equal(lastToDrop([...turns(10, 10), ...question]), "a1"); // the question stays
  assert.equal(lastToDrop(question), null);
  const file = { kind: "text", name: "f", size: 100, data: "x".repeat(100) };
  const withFile = message("q", "user", "x", { attachments: [file] });
  assert.equal(lastToDrop([withFile, message("a", "assistant"), ...turns(10, 10)]), "a");
  const image = { kind: "image", name: "i", size: 1, data: "" };
  const withImage = message("q", "user", "x", { attachments: [image] });
  assert.equal(lastToDrop([withImage, message("a", "assistant"), ...turns(8000)]), "a"); // about 1,100 tokens
});

test("dropped messages are of the shown branch only", () => {
  const tree = { ...chat(), dropped: { last: "a1", at: "a2" } };
  assert.deepEqual([ids(splitPath(tree).dropped), ids(splitPath(tree).sent)], ["q1 a1", "q2 a2"]);
  assert.equal(ids(splitPath({ ...tree, leaf: "q1" }).sent), "q1");
});

test("the context is full when prompt and answer take all of it", () => {
  const figures = { prompt: 200, tokens: 56 };
  assert.deepEqual(
    [256, 257, null].map((context) => isFull(figures, context)),
    [true, false, false],
  );
  assert.equal(isFull({ prompt: null, tokens: 300 }, 256), false);
});

test("an answer grows by text, reasoning and calls", () => {
  const answer = message("a", "assistant", "");
  addDelta(answer, { content: "" }, 1000);
  addDelta(answer, { reasoning_content: "Hm", reasoning: "Hm" }, 1000);
  addDelta(answer, { reasoning: "m" }, 2000);
  assert.deepEqual(answer.thinking, { text: "Hmm", began: 1000, seconds: null });
  addDelta(answer, { content: "Yes" }, 3500);
  addDelta(answer, { content: null }, 9000);
  assert.deepEqual([answer.text, answer.thinking.seconds], ["Yes", 2.5]);
  addDelta(answer, { tool_calls: [{ index: 0, id: "c", function: { name: "f", arguments: "" } }] });
  addDelta(answer, { tool_calls: [{ index: 0, function: { arguments: '{"a":1' } }] });
  assert.deepEqual(answer.calls, [{ id: "c", name: "f", arguments: '{"a":1' }]);
  assert.deepEqual(['{"a":1', '{"a":1}'].map(prettyArguments), ['{"a":1', '{\n  "a": 1\n}']);
  const stopped = message("b", "assistant", "");
  addDelta(stopped, { reasoning: "Hm" }, 1000);
  endThinking(stopped, 1250);
  assert.equal(stopped.thinking.seconds, 0.25);
});

test("a request has the messages before its answer; questions without an answer are joined", () => {
  const asked = conversation(
    message("1", "user", "a"),
    message("2", "assistant", ""),
    message("3", "user", "b"),
    message("4", "assistant", ""),
  );
  const body = requestBody({ ...asked, system: "s", settings: { top_k: 4, other: 1 } }, "name", "4");
  assert.deepEqual(body.messages, [
    { role: "system", content: "s" },
    { role: "user", content: "a\n\nb", tool_calls: undefined, tool_call_id: undefined },
  ]);
  assert.deepEqual([body.model, body.top_k, body.other, body.tools], ["name", 4, undefined, undefined]);
});

test("files are parts of a message", () => {
  const text = { kind: "text", name: "f.md", size: 9, data: "a ```` b\n" };
  assert.equal(textOf(text), "f.md:\n\n`````\na ```` b\n`````");
  const image = { kind: "image", name: "i", size: 1, data: "data:image/jpeg;base64,AA" };
  const question = message("1", "user", "what?", { attachments: [text, image] });
  const { messages } = requestBody(conversation(question, message("2", "assistant", "")), "name", "2");
  assert.deepEqual(messages[0].content, [
    { type: "text", text: textOf(text) },
    { type: "image_url", image_url: { url: image.data } },
    { type: "text", text: "what?" },
  ]);
});
