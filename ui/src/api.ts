import type { AppInfo, Run, Session } from "greenroom-client";

/** An error answered by the server. code: the name of its class, or empty. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** Where a session is: the names in its path and in the page's address. */
export type SessionPlace = { readonly app: string; readonly user: string; readonly session: string };

export const DEFAULT_USER = "user";

/** The server's address without a trailing slash. */
export const SERVER = new URL("..", new URL(import.meta.env.BASE_URL, location.href)).href.replace(/\/$/, "");

const encode = encodeURIComponent;

export function sessionsPath(app: string, user: string): string {
  return `/apps/${encode(app)}/users/${encode(user)}/sessions`;
}

export function sessionPath({ app, user, session }: SessionPlace): string {
  return `${sessionsPath(app, user)}/${encode(session)}`;
}

/** Sends a request with a JSON body and returns the decoded reply. Throws ApiError. */
export async function call<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const reply = await send(method, path, body, signal);
  const text = await reply.text();
  return (text === "" ? undefined : JSON.parse(text)) as T;
}

/** As `call`, but returns the reply itself, for its headers. */
export async function send(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const reply = await fetch(SERVER + path, {
    method,
    signal: signal ?? null,
    ...(body === undefined ? {} : { headers: { "content-type": "application/json" }, body: JSON.stringify(body) }),
  });
  if (!reply.ok) throw await errorOf(reply);
  return reply;
}

export async function errorOf(reply: Response): Promise<ApiError> {
  try {
    const problem: unknown = await reply.json();
    if (typeof problem === "object" && problem !== null) {
      const { detail, code } = problem as { detail?: unknown; code?: unknown };
      const text = typeof detail === "string" ? detail : reply.statusText;
      return new ApiError(reply.status, typeof code === "string" ? code : "", text);
    }
  } catch {
    // not JSON: a proxy's page
  }
  return new ApiError(reply.status, "", `${reply.status} ${reply.statusText}`);
}

export async function listApps(): Promise<readonly AppInfo[]> {
  return (await call<{ apps: AppInfo[] }>("GET", "/list-apps?detailed=true")).apps;
}

export type SessionPage = { readonly sessions: readonly Session[]; readonly next: string | null };

/** A page of a user's sessions, newest update first. */
export async function listSessions(app: string, user: string, text: string, token: string): Promise<SessionPage> {
  const query = new URLSearchParams({ limit: "50" });
  if (text !== "") query.set("text", text);
  if (token !== "") query.set("page_token", token);
  const reply = await send("GET", `${sessionsPath(app, user)}?${query}`);
  return { sessions: (await reply.json()) as Session[], next: reply.headers.get("x-next-page-token") };
}

export function titleOf(session: Session): string {
  const metadata = session.state["__session_metadata__"];
  const title = typeof metadata === "object" && metadata !== null && "displayName" in metadata ? metadata.displayName : "";
  return typeof title === "string" && title !== "" ? title : session.id;
}

export async function runsOfSession(place: SessionPlace): Promise<readonly Run[]> {
  const query = new URLSearchParams({ app_name: place.app, user_id: place.user, session_id: place.session, limit: "1000" });
  return (await call<{ runs: Run[] }>("GET", `/runs?${query}`)).runs;
}
