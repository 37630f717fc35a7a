import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { eventsOf } = await load("pages/chat/events.ts");

async function seen(text, cut) {
  const bytes = new TextEncoder().encode(text);
  const body = new ReadableStream({
    start(controller) {
      for (let at = 0; at < bytes.length; at += cut) controller.enqueue(bytes.slice(at, at + cut));
      controller.close();
    },
  });
  const events = [];
  for await (const event of eventsOf(body)) events.push(JSON.parse(event));
  return events;
}

for (const end of ["\n", "\r\n", "\r"]) {
  test(`events are found wherever the stream is cut, with lines ended by ${JSON.stringify(end)}`, async () => {
    const data = [{ a: "é😀" }, { b: "two\nlines" }, { c: 3 }];
    const [first, second] = data.map((each) => JSON.stringify(each));
    const events = [": hello", `data: ${first}`, `event: x\ndata:${second}`, 'data: {\ndata: "c": 3}', "data: half"];
    const text = events.join("\n\n").replaceAll("\n", end);
    for (const cut of [1, 2, 3, 7, 1000]) {
      assert.deepEqual(await seen(text, cut), data);
    }
  });
}
