import { GreenroomError, errorOfReply } from "./errors.ts";

export type Sent = {
  readonly method?: string;
  readonly body?: unknown;
  readonly headers?: { readonly [name: string]: string };
  readonly signal?: AbortSignal | undefined;
};

const FIRST_PAUSE_MS = 100;
const MOST_PAUSE_MS = 5_000;

/** Sends requests, again when that can do no harm. */
export class Transport {
  readonly url: string;
  readonly retryMs: number;
  private readonly headers: { readonly [name: string]: string };
  private readonly fetch: typeof globalThis.fetch;

  constructor(url: string, apiKey: string | undefined, retryMs: number, fetch: typeof globalThis.fetch) {
    this.url = url.replace(/\/+$/, "");
    this.retryMs = retryMs;
    this.headers = apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
    this.fetch = fetch;
  }

  /** Sends once. Throws GreenroomError; without an answer its status is 0. */
  async once(path: string, { method = "GET", body, headers = {}, signal }: Sent): Promise<Response> {
    const isRaw = body instanceof Blob || body instanceof Uint8Array;
    const sent: Record<string, string> = { ...this.headers, ...headers };
    if (body !== undefined) sent["content-type"] ??= isRaw ? "application/octet-stream" : "application/json";
    let reply: Response;
    try {
      reply = await this.fetch(this.url + path, {
        method,
        headers: sent,
        redirect: "error", // the key is for this server only
        ...(body === undefined ? {} : { body: isRaw ? (body as BodyInit) : JSON.stringify(body) }),
        ...(signal === undefined ? {} : { signal }),
      });
    } catch (error) {
      signal?.throwIfAborted();
      throw new GreenroomError("Unavailable", 0, `No answer from ${this.url}: ${reason(error)}`);
    }
    if (reply.ok) return reply;
    const error = await errorOfReply(reply);
    throw Object.assign(error, { retryAfter: Number(reply.headers.get("retry-after")) || 0 });
  }

  /** Sends until there is an answer. isSafe: the request may be processed twice. */
  async send(path: string, sent: Sent, isSafe: boolean): Promise<Response> {
    const pauses = new Pauses(this.retryMs);
    for (;;) {
      try {
        return await this.once(path, sent);
      } catch (error) {
        if (!mayBeSentAgain(error, isSafe)) throw error;
        await pauses.next(error, sent.signal);
      }
    }
  }

  async json<T>(path: string, sent: Sent = {}): Promise<T> {
    const isSafe = sent.method !== "POST" && sent.method !== "PATCH";
    const reply = await this.send(path, sent, isSafe || "idempotency-key" in (sent.headers ?? {}));
    const text = await reply.text();
    return (text === "" ? undefined : JSON.parse(text)) as T;
  }
}

/** Whether a request may be sent again: always when the server refused it for now, else only when repeating is safe. */
function mayBeSentAgain(error: unknown, isSafe: boolean): boolean {
  if (!(error instanceof GreenroomError)) return false;
  if (error.status === 429 || error.status === 503) return true;
  return isSafe && (error.status === 0 || error.status === 502 || error.status === 504);
}

/** Growing pauses, until `retryMs` after the last success. */
export class Pauses {
  private readonly retryMs: number;
  private tries = 0;
  private deadline: number | null = null;

  constructor(retryMs: number) {
    this.retryMs = retryMs;
  }

  succeeded(): void {
    this.tries = 0;
    this.deadline = null;
  }

  /** Waits, or throws the error when the time is over. */
  async next(error: unknown, signal: AbortSignal | undefined): Promise<void> {
    const asked = (error as { retryAfter?: number } | null)?.retryAfter ?? 0;
    const ms = asked > 0 ? asked * 1000 : Math.min(FIRST_PAUSE_MS * 2 ** this.tries, MOST_PAUSE_MS);
    this.tries += 1;
    this.deadline ??= Date.now() + this.retryMs;
    if (Date.now() + ms > this.deadline) throw error;
    await pause(ms, signal);
  }
}

/** Ends early when a browser is online again. */
function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    function end(): void {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      globalThis.removeEventListener?.("online", end);
      if (signal?.aborted) reject(signal.reason as Error);
      else resolve();
    }
    if (signal?.aborted) return reject(signal.reason as Error);
    const timer = setTimeout(end, ms);
    signal?.addEventListener("abort", end, { once: true });
    globalThis.addEventListener?.("online", end); // not in node
  });
}

function reason(error: unknown): string {
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  return cause instanceof Error ? cause.message : String(cause);
}
