// Evaluation sets, runs and results of an app, by ADK's endpoints.
import type { EvalCaseResult, EvalSet, EvalSetResult, Invocation, MetricInfo } from "greenroom-client";
import { call, client } from "../api";

export const PASSED = 1;
export const FAILED = 2;

export type Wanted = { readonly metricName: string; readonly threshold: number };

/** A result as its case ended. */
export type Progress = { readonly finished: number; readonly total: number; readonly result: EvalCaseResult };

function at(app: string): string {
  return `/dev/apps/${encodeURIComponent(app)}`;
}

export function listSets(app: string): Promise<readonly string[]> {
  return call("GET", `${at(app)}/eval_sets`);
}

export function getSet(app: string, set: string): Promise<EvalSet> {
  return call("GET", `${at(app)}/eval-sets/${encodeURIComponent(set)}`);
}

export async function createSet(app: string, set: string): Promise<void> {
  await call("POST", `${at(app)}/eval-sets`, { evalSet: { eval_set_id: set, eval_cases: [] } });
}

export async function deleteSet(app: string, set: string): Promise<void> {
  await call("DELETE", `${at(app)}/eval-sets/${encodeURIComponent(set)}`);
}

export async function deleteCase(app: string, set: string, evalId: string): Promise<void> {
  await call("DELETE", `${at(app)}/eval-sets/${encodeURIComponent(set)}/eval-cases/${encodeURIComponent(evalId)}`);
}

/** Makes a case of a session; its id is the session's. */
export async function addSession(app: string, set: string, userId: string, sessionId: string): Promise<void> {
  const evalId = sessionId.replace(/\W/g, "_");
  await call("POST", `${at(app)}/eval-sets/${encodeURIComponent(set)}/add-session`, { evalId, sessionId, userId });
}

export async function listMetrics(app: string): Promise<readonly MetricInfo[]> {
  return (await call<{ metricsInfo: readonly MetricInfo[] }>("GET", `${at(app)}/metrics-info`)).metricsInfo;
}

/** The results of a set, oldest first, at most `limit` of the newest. */
export async function history(app: string, set: string, limit: number): Promise<readonly EvalSetResult[]> {
  const start = `${app}_${set}_`;
  const names = (await call<readonly string[]>("GET", `${at(app)}/eval_results`)).filter(
    (name) => name.startsWith(start) && /^[\d.]+$/.test(name.slice(start.length)),
  );
  const newest = names.sort((a, b) => Number(a.slice(start.length)) - Number(b.slice(start.length))).slice(-limit);
  return Promise.all(newest.map((name) => call<EvalSetResult>("GET", `${at(app)}/eval_results/${encodeURIComponent(name)}`)));
}

/** Runs the set; `onProgress` gets each result as its case ends. Returns the id of the whole result. */
export async function run(
  app: string,
  set: string,
  evalMetrics: readonly Wanted[],
  onProgress: (progress: Progress) => void,
  signal: AbortSignal,
): Promise<string> {
  const path = `${at(app)}/eval-sets/${encodeURIComponent(set)}/run`;
  let resultId: string | null = "";
  for await (const { event, data } of client.requestEvents(path, { method: "POST", body: { evalMetrics }, signal })) {
    if (event === "end") resultId = (JSON.parse(data) as { evalResultId: string | null }).evalResultId;
    else if (data !== "") onProgress(JSON.parse(data) as Progress);
  }
  if (resultId === null) throw new Error("The result is not stored: it is larger than the server's limits.eval_result_bytes");
  if (resultId === "") throw new Error("The connection was lost before the evaluation ended");
  return resultId;
}

/** Numbers of passed results, and of all with a verdict. */
export function passed(results: readonly EvalCaseResult[]): { readonly passed: number; readonly total: number } {
  const counted = results.filter(({ finalEvalStatus }) => finalEvalStatus === PASSED || finalEvalStatus === FAILED);
  return { passed: counted.filter(({ finalEvalStatus }) => finalEvalStatus === PASSED).length, total: counted.length };
}

export function textOf(content: Invocation["finalResponse"]): string {
  return (content?.parts ?? []).map((part) => (part.thought === true ? "" : (part.text ?? ""))).join("");
}

/** The tool calls of a turn as lines of text. */
export function callsOf(turn: Invocation): string {
  const data = turn.intermediateData;
  const events = data?.invocationEvents ?? [];
  const calls = [
    ...events.flatMap((event) => (event.content?.parts ?? []).flatMap((part) => part.functionCall ?? [])),
    ...(data?.toolUses ?? []),
  ];
  return calls.map((one) => `${one.name}(${JSON.stringify(one.args ?? {})})`).join("\n");
}
