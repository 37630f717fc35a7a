// The messages of a conversation are a tree: a message that is edited or answered again gets a sibling, a branch.
// `leaf` is the end of the branch that is shown. A message comes after its parent in the list.

import type { Conversation, Message } from "./store.ts";

type Tree = Pick<Conversation, "messages" | "leaf">;

/** The messages from the first to the leaf. */
export function pathOf({ messages, leaf }: Tree): Message[] {
  const byId = new Map<string | null, Message>(messages.map((message) => [message.id, message]));
  const path: Message[] = [];
  for (let at = byId.get(leaf); at; at = byId.get(at.parent)) path.push(at);
  return path.reverse();
}

/** Add a message at the end of the branch that is shown. */
export function append(conversation: Tree, message: Omit<Message, "parent">): void {
  conversation.messages.push({ ...message, parent: conversation.leaf });
  conversation.leaf = message.id;
}

/** A message and its siblings, oldest first. */
export function branchesOf({ messages }: Tree, { parent, role }: Message): Message[] {
  return messages.filter((message) => message.parent === parent && message.role === role);
}

/** The end of the newest branch that has a message in it. */
export function newestLeaf({ messages }: Tree, id: string): string {
  const newestChild = new Map(messages.map((message) => [message.parent, message.id]));
  let leaf = id;
  for (let child: string | undefined = id; child !== undefined; child = newestChild.get(child)) leaf = child;
  return leaf;
}

/** Go back to before a message, which then gets a sibling; one that failed without a text is removed. */
export function branchAt(conversation: Tree, id: string): void {
  const message = conversation.messages.find((each) => each.id === id);
  if (!message) return;
  conversation.leaf = message.parent;
  const hasNext = conversation.messages.some(({ parent }) => parent === id);
  if (isEmpty(message) && !hasNext) conversation.messages.splice(conversation.messages.indexOf(message), 1);
}

/** Whether a message has nothing to send: an answer that failed. */
export function isEmpty({ text, attachments, calls }: Message): boolean {
  return !text && !attachments?.length && !calls?.length;
}
