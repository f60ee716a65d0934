import { type AppInfo, Client, type Session, type SessionPlace } from "greenroom-client";

export type { SessionPlace };

export const DEFAULT_USER = "user";

/** The path of the pages: `/dev-ui/`, below the server's prefix. A built script is in `assets/` beside them. */
export const BASE = import.meta.env.PROD ? new URL(/* @vite-ignore */ "..", import.meta.url).pathname : import.meta.env.BASE_URL;

/** The server's address without a trailing slash. */
export const SERVER = new URL("..", new URL(BASE, location.href)).href.replace(/\/$/, "");

/** For what a person waits for: an error shows at once. */
export const client = new Client(SERVER, { retryMs: 0 });

/** For what follows the server by itself: it tries again until its reader stops. */
export const patientClient = new Client(SERVER, { retryMs: Number.POSITIVE_INFINITY });

const encode = encodeURIComponent;

export function sessionPath({ app, user, session }: SessionPlace): string {
  return `/apps/${encode(app)}/users/${encode(user)}/sessions/${encode(session)}`;
}

/** Sends a request for which the client has no method. Throws GreenroomError. */
export function call<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  return client.request<T>(path, { method, body, signal });
}

export function listApps(): Promise<readonly AppInfo[]> {
  return client.listApps();
}

export function titleOf(session: Session): string {
  const metadata = session.state["__session_metadata__"];
  const title = typeof metadata === "object" && metadata !== null && "displayName" in metadata ? metadata.displayName : "";
  return typeof title === "string" && title !== "" ? title : session.id;
}
