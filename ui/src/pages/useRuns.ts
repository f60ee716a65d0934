import type { ListRunsResponse, Run } from "greenroom-client";
import { useMemo } from "react";
import { useWatched } from "../useWatched";
import { type RunFilters, merge, toQuery } from "./filters";

export const PAGE = 1000;

/** runs: newest first. next: the token of the page after the newest one; undefined before the first answer. */
export type WatchedRuns = { readonly runs: readonly Run[]; readonly next: string | null | undefined; readonly error: Error | null };

const NONE: readonly Run[] = [];

/** The newest runs that match, kept up to date by the server's stream. onChange: called with each batch of changes. */
export function useRuns(filters: RunFilters, onChange?: (runs: readonly Run[]) => void): WatchedRuns {
  const key = JSON.stringify(filters);
  const path = useMemo(() => `/runs?${toQuery(JSON.parse(key) as RunFilters, PAGE, null, Date.now() / 1000)}`, [key]);
  const { page, error } = useWatched<ListRunsResponse, Run>(path, {
    merge: (before, changed) => ({ ...before, runs: merge(before.runs ?? [], changed, filters) }),
    onChange,
  });
  return { runs: page?.runs ?? NONE, next: page === undefined ? undefined : (page.nextPageToken ?? null), error };
}
