// What running tools have printed so far. It is only streamed: the call's response has it when the tool has ended.
import type { Event, Run } from "greenroom-client";
import type { ToolOutput } from "./model";

/** outputs and responses by call id, runs by id. */
type Known = {
  readonly outputs: ReadonlyMap<string, ToolOutput>;
  readonly responses: ReadonlyMap<string, unknown>;
  readonly runs: ReadonlyMap<string, Run>;
};

const MAX_CHARACTERS = 20_000;

type Piece = { readonly functionCallId?: string; readonly stdout?: string; readonly stderr?: string };

/** The piece of output that a partial event brings. */
export function pieceOf(event: Event): Piece | null {
  const piece = event.customMetadata?.["toolOutput"];
  return typeof piece === "object" && piece !== null ? (piece as Piece) : null;
}

/** Adds pieces, each once, and leaves out calls that have ended. Of long output the end is kept. */
export function withOutputs(log: Known, added: readonly Event[]): ReadonlyMap<string, ToolOutput> {
  if (added.length === 0 && log.outputs.size === 0) return log.outputs;
  const outputs = new Map(log.outputs);
  for (const event of added) {
    const piece = pieceOf(event);
    const id = piece?.functionCallId ?? "";
    const before = outputs.get(id);
    if (piece === null || event.timestamp <= (before?.at ?? 0)) continue;
    const text = `${before?.text ?? ""}${piece.stdout ?? ""}${piece.stderr ?? ""}`.slice(-MAX_CHARACTERS);
    outputs.set(id, { text, runId: event.invocationId, at: event.timestamp });
  }
  for (const [id, { runId, at }] of outputs)
    if (log.responses.has(id) || (log.runs.get(runId)?.endedAt ?? 0) >= at) outputs.delete(id);
  return outputs;
}
