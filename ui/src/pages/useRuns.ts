import type { ListRunsResponse, Run } from "greenroom-client";
import { useEffect, useRef, useState } from "react";
import { SERVER, call } from "../api";
import { type RunFilters, merge, toQuery } from "./filters";

export const PAGE = 1000;

/** runs: newest first. next: the token of the page after the newest one; undefined before the first answer. */
export type WatchedRuns = { readonly runs: readonly Run[]; readonly next: string | null | undefined; readonly error: Error | null };

const NONE: WatchedRuns = { runs: [], next: undefined, error: null };

/** The newest runs that match, kept up to date by the server's stream. onChange: called with each batch of changes. */
export function useRuns(filters: RunFilters, onChange?: (runs: readonly Run[]) => void): WatchedRuns {
  const [watched, setWatched] = useState(NONE);
  const notify = useRef(onChange);
  notify.current = onChange;
  const key = JSON.stringify(filters);
  useEffect(() => {
    const chosen = JSON.parse(key) as RunFilters;
    const query = toQuery(chosen, PAGE, null, Date.now() / 1000);
    const stream = new EventSource(`${SERVER}/runs?${query}`);
    let pending: Run[] = [];
    let frame = 0;
    stream.addEventListener("snapshot", (message) => {
      const page = JSON.parse((message as MessageEvent<string>).data) as ListRunsResponse;
      pending = [];
      setWatched({ runs: page.runs ?? [], next: page.nextPageToken ?? null, error: null });
    });
    stream.onmessage = (message: MessageEvent<string>) => {
      pending.push(JSON.parse(message.data) as Run);
      frame ||= requestAnimationFrame(flush);
    };
    stream.onerror = () => {
      if (stream.readyState !== EventSource.CLOSED) return; // it connects again by itself
      // Refused: an ordinary request says why.
      call("GET", `/runs?${query}`).then(
        () => setWatched((before) => ({ ...before, error: new Error("The connection was lost; reload the page") })),
        (error: unknown) => setWatched((before) => ({ ...before, error: error as Error })),
      );
    };
    function flush() {
      frame = 0;
      const changed = pending;
      pending = [];
      notify.current?.(changed);
      setWatched((before) => ({ ...before, runs: merge(before.runs, changed, chosen) }));
    }
    return () => {
      stream.close();
      cancelAnimationFrame(frame);
      setWatched(NONE);
    };
  }, [key]);
  return watched;
}
