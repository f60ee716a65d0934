import type { SessionPlace } from "./client.ts";
import { GreenroomError } from "./errors.ts";
import type { Content, Event } from "./wire.ts";

/**
 * after: events stored after this sequence number are sent first. audioType: media type of `sendAudio`. onEvent: gets each
 * event; stored ones have their sequence number. onEnd: called once; the error is null after `close`, and when the model has
 * ended the conversation.
 */
export type LiveOptions = {
  readonly modalities?: readonly ("AUDIO" | "TEXT" | "VIDEO")[];
  readonly after?: number;
  readonly audioType?: string;
  readonly onOpen?: () => void;
  readonly onEvent: (event: Event, seq: number | null) => void;
  readonly onEnd: (error: GreenroomError | null) => void;
};

const NORMAL = 1000;

/** A live conversation: media both ways over one WebSocket. Its sign-in is the browser's. */
export class LiveConnection {
  private readonly socket: WebSocket;
  private isClosed = false;

  constructor(server: string, { app, user, session }: SessionPlace, options: LiveOptions) {
    const { modalities = [], after, audioType = "audio/pcm;rate=16000" } = options;
    const query = new URLSearchParams({ app_name: app, user_id: user, session_id: session, binary_mime_type: audioType });
    for (const one of modalities) query.append("modalities", one);
    if (after !== undefined) query.set("after", String(after));
    this.socket = new WebSocket(`${server.replace(/^http/, "ws").replace(/\/+$/, "")}/run_live?${query}`);
    this.socket.onopen = () => options.onOpen?.();
    this.socket.onmessage = (message: MessageEvent<string>) => {
      const { seq = null, ...event } = JSON.parse(message.data) as Event & { seq?: number; error?: string };
      if (!("error" in event)) options.onEvent(event as Event, seq);
    };
    this.socket.onclose = ({ code, reason }) => options.onEnd(this.isClosed || code === NORMAL ? null : errorOfClose(code, reason));
  }

  sendText(text: string): void {
    this.sendContent({ role: "user", parts: [{ text }] });
  }

  sendContent(content: Content): void {
    this.send({ content });
  }

  /** A piece of audio, of `audioType`: 16-bit little-endian samples by default. */
  sendAudio(samples: ArrayBuffer): void {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(samples);
  }

  /** data: base64. */
  sendBlob(mimeType: string, data: string): void {
    this.send({ blob: { mime_type: mimeType, data } });
  }

  /** Says that no audio comes for now, so that the model need not wait for more. */
  endAudio(): void {
    this.send({ audio_stream_end: true });
  }

  close(): void {
    this.isClosed = true;
    this.socket.close(NORMAL);
  }

  private send(frame: object): void {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(frame));
  }
}

function errorOfClose(code: number, reason: string): GreenroomError {
  if (reason !== "") return new GreenroomError(code === 1011 ? "RunFailed" : "CallerError", code === 1011 ? 500 : 400, reason);
  return new GreenroomError("Unavailable", 0, "The connection was lost");
}
