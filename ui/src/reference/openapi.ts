// What Swagger UI shows of the OpenAPI document.

type Operation = { readonly summary?: string; readonly "x-alias-of"?: string; readonly [key: string]: unknown };
type Socket = { readonly path: string; readonly summary: string };
export type OpenApi = {
  readonly info: { readonly description: string; readonly [key: string]: unknown };
  readonly paths: { readonly [path: string]: { readonly [method: string]: Operation } };
  readonly "x-websockets"?: readonly Socket[];
  readonly [key: string]: unknown;
};

/** The document without aliases, which are named at their operation; with WebSockets, which OpenAPI can't describe. */
export function forReading(document: OpenApi): OpenApi {
  const aliases = new Map<string, string[]>();
  for (const [path, methods] of Object.entries(document.paths))
    for (const [method, { "x-alias-of": canonical }] of Object.entries(methods))
      if (canonical !== undefined) aliases.set(`${method} ${canonical}`, [...(aliases.get(`${method} ${canonical}`) ?? []), path]);
  const paths: Record<string, Record<string, Operation>> = {};
  for (const [path, methods] of Object.entries(document.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      if (operation["x-alias-of"] !== undefined) continue;
      const names = aliases.get(`${method} ${path}`) ?? [];
      (paths[path] ??= {})[method] = {
        ...operation,
        summary: (operation.summary ?? "").replaceAll("`", ""), // shown as plain text
        ...(names.length === 0 ? {} : { description: `Also at ${names.map((name) => `\`${name}\``).join(", ")}.` }),
      };
    }
  }
  const sockets = (document["x-websockets"] ?? []).map(({ path, summary }) => `- \`${path}\`: ${summary}`);
  const description = [document.info.description, ...(sockets.length === 0 ? [] : ["WebSockets:", sockets.join("\n")])].join("\n\n");
  return { ...document, info: { ...document.info, description }, paths };
}

// The parts of Immutable's maps and lists that are used.
type Shown = { get(key: "path" | "method"): string; getIn(path: readonly string[]): string | undefined };
type ShownList = { filter(keep: (one: Shown) => boolean): ShownList; readonly size: number };
type Tag = { get(key: "operations"): ShownList; set(key: "operations", value: ShownList): Tag };
export type TaggedOperations = {
  map(change: (tag: Tag, name: string) => Tag): TaggedOperations;
  filter(keep: (tag: Tag) => boolean): TaggedOperations;
};

/** The operations with all words of the text in their tag, method, path or summary. */
export function matching(operations: TaggedOperations, text: string): TaggedOperations {
  const words = text.toLowerCase().split(/\s+/);
  const matches = (one: Shown, tag: string) => {
    const searched = `${tag} ${one.get("method")} ${one.get("path")} ${one.getIn(["operation", "summary"]) ?? ""}`.toLowerCase();
    return words.every((word) => searched.includes(word));
  };
  return operations
    .map((tag, name) => tag.set("operations", tag.get("operations").filter((one) => matches(one, name))))
    .filter((tag) => tag.get("operations").size > 0);
}
