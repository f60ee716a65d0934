import type { HumanRequest, ListRequestsResponse } from "greenroom-client";
import { type Watched, useWatched } from "../useWatched";
import { merge } from "./requests";

/**
 * The newest open requests that match, kept up to date by the server's stream. path: null keeps what was read.
 * approver: the user of this filter in the path.
 */
export function useRequests(path: string | null, approver = ""): Watched<ListRequestsResponse> {
  return useWatched<ListRequestsResponse, HumanRequest>(path, {
    merge: (page, changed) => ({ ...page, requests: merge(page.requests ?? [], changed, approver) }),
  });
}
