export { Client } from "./client.ts";
export type { ClientOptions, RunMessage, RunQuery, SessionPlace, SessionQuery, UsageQuery } from "./client.ts";
export { GreenroomError } from "./errors.ts";
export { RunStream } from "./stream.ts";
export type { StreamItem } from "./stream.ts";
export type * from "./wire.ts";
export type { GenerateContentResponseUsageMetadata as UsageMetadata } from "./wire.ts";
