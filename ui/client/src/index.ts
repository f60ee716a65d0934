export { Client } from "./client.ts";
export type { ClientOptions, EventQuery, RunMessage, RunQuery, SessionPlace, SessionQuery, UsageQuery } from "./client.ts";
export { GreenroomError } from "./errors.ts";
export type { Frame } from "./sse.ts";
export { RunStream } from "./stream.ts";
export type { Following, StreamItem } from "./stream.ts";
export type { Sent } from "./transport.ts";
export type * from "./wire.ts";
export type { GenerateContentResponseUsageMetadata as UsageMetadata } from "./wire.ts";
