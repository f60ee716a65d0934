// Unfinished messages at the end of a run's items.
import type { Event } from "greenroom-client";
import { messageItems, partsOf } from "./items";
import type { Branch, BranchesItem, Item } from "./model";

/** An unfinished message: its chunks by time. One per agent, branch and scope of a run; a newer message replaces it. */
export type Draft = { readonly eventId: string; readonly startedAt: number; readonly chunks: readonly Event[] };

export function withDrafts(items: readonly Item[], drafts: readonly Draft[]): readonly Item[] {
  let out = items;
  for (const draft of drafts) {
    const merged = whole(draft.chunks);
    if (merged !== null && !merged.isolationScope) out = place(out, merged.branch ?? "", messageItems(merged, true));
  }
  return out;
}

/** The message so far as one event. */
function whole(chunks: readonly Event[]): Event | null {
  const first = chunks[0];
  if (first === undefined) return null;
  const { inputTranscription: _, outputTranscription: __, ...rest } = first;
  return { ...rest, content: { role: "model", parts: chunks.flatMap(partsOf) } };
}

function place(items: readonly Item[], branch: string, added: readonly Item[]): readonly Item[] {
  const last = items.at(-1);
  if (branch === "" || last?.kind !== "branches") return [...items, ...added];
  const at = last.branches.findIndex(({ key }) => branch === key || branch.startsWith(`${key}.`));
  const found = last.branches[at];
  const branches: readonly Branch[] =
    found === undefined
      ? [...last.branches, { key: branch, name: branch.split(".").at(-1) ?? branch, items: added }]
      : last.branches.with(at, { ...found, items: place(found.items, branch === found.key ? "" : branch, added) });
  const changed: BranchesItem = { ...last, branches };
  return items.with(-1, changed);
}
