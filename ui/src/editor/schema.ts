/** Completions by a JSON Schema at a position in a YAML text: keys and values. */

export type Schema = {
  readonly $ref?: string;
  readonly $defs?: { readonly [name: string]: Schema };
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly allOf?: readonly Schema[];
  readonly properties?: { readonly [name: string]: Schema };
  readonly additionalProperties?: Schema | boolean;
  readonly items?: Schema | boolean;
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly type?: string | readonly string[];
  readonly description?: string;
};
/** An item of a list, or a key of a map. */
export type Step = typeof ITEM | string;
export type Suggestion = { readonly label: string; readonly detail: string; readonly info: string };
/** from: where the word begins that a suggestion replaces. */
export type Suggestions = { readonly from: number; readonly isKey: boolean; readonly options: readonly Suggestion[] };

export const ITEM = 0;
const LINE = /^(\s*)((?:- +)*)(?:(["']?)([\w.-]+)\3(?:\s*:(?:\s+(.*))?)?)?$/;

/** The steps to the map or list that holds the text at a column of the last line. */
export function pathOf(lines: readonly string[]): Step[] {
  const path: Step[] = [];
  const last = lines.at(-1) ?? "";
  const dashes = LINE.exec(last)?.[2] ?? "";
  let limit = /^\s*/.exec(last)?.[0].length ?? 0;
  if (dashes !== "") path.push(ITEM);
  for (const line of lines.slice(0, -1).reverse()) {
    if (/^\s*(#|$)/.test(line)) continue;
    const [, indent = "", marks = "", , key] = LINE.exec(line) ?? [];
    const column = indent.length + marks.length;
    // A list may stand in the column of its key.
    const isAbove = column < limit || (path.at(-1) === ITEM && column === limit && marks === "");
    if (marks !== "" && indent.length < limit) {
      if (isAbove && key !== undefined) path.push(key);
      path.push(ITEM);
      limit = indent.length;
    } else if (isAbove && key !== undefined) {
      path.push(key);
      limit = column;
    }
    if (limit === 0 && path.at(-1) !== ITEM) break;
  }
  return path.reverse();
}

/** The schemas of a place, without references and alternatives. */
export function schemasAt(root: Schema, path: readonly Step[], kind: string | undefined): Schema[] {
  let found = alternatives(root, root).filter((one) => isOfKind(root, one, kind));
  for (const step of path) {
    found = found.flatMap((one) => {
      const inner = step === ITEM ? one.items : (one.properties?.[step] ?? one.additionalProperties);
      return typeof inner === "object" ? alternatives(root, inner) : [];
    });
  }
  return found;
}

/** Completions at the end of a text. */
export function suggest(root: Schema, text: string): Suggestions | null {
  const lines = text.split("\n");
  const line = lines.at(-1) ?? "";
  const kind = /^agent_?[cC]lass:\s*["']?(\w+)/m.exec(text)?.[1];
  const value = /^(\s*(?:- +)*)([\w.-]+):\s+([\w.-]*)$/.exec(line);
  if (value !== null) {
    const [, , key = "", word = ""] = value;
    const options = schemasAt(root, [...pathOf(lines), key], kind).flatMap(valuesOf);
    return options.length === 0 ? null : { from: text.length - word.length, isKey: false, options: unique(options) };
  }
  const word = /^\s*(?:- +)*([\w.-]*)$/.exec(line)?.[1];
  if (word === undefined) return null;
  const options = schemasAt(root, pathOf(lines), kind).flatMap(keysOf);
  return options.length === 0 ? null : { from: text.length - word.length, isKey: true, options: unique(options) };
}

function alternatives(root: Schema, schema: Schema): Schema[] {
  if (schema.$ref !== undefined) {
    const target = root.$defs?.[schema.$ref.replace(/^.*\//, "")];
    return target === undefined ? [] : alternatives(root, target);
  }
  const inner = [...(schema.anyOf ?? []), ...(schema.oneOf ?? [])].filter((one) => one.properties !== undefined || isMore(one));
  if (inner.length > 0) return inner.flatMap((one) => alternatives(root, one));
  return [schema];
}

function isMore(schema: Schema): boolean {
  return [schema.$ref, schema.anyOf, schema.oneOf, schema.enum, schema.const, schema.type].some((one) => one !== undefined);
}

/** Whether a file with this `agent_class` can be of the schema; without one it is an LlmAgent's. */
function isOfKind(root: Schema, schema: Schema, kind = "LlmAgent"): boolean {
  const named = schema.properties?.agent_class;
  const values = named === undefined ? [] : alternatives(root, named).flatMap(valuesOf);
  return values.length === 0 || values.some((one) => one.label === kind);
}

function keysOf(schema: Schema): Suggestion[] {
  const names = Object.entries(schema.properties ?? {}).filter(([name]) => !/[A-Z]/.test(name));
  return names.map(([label, inner]) => ({ label, detail: typeOf(inner), info: inner.description ?? "" }));
}

function valuesOf(schema: Schema): Suggestion[] {
  const values = schema.enum ?? (schema.const !== undefined ? [schema.const] : schema.type === "boolean" ? [true, false] : []);
  return values.filter((one) => one !== null).map((one) => ({ label: String(one), detail: "", info: "" }));
}

function typeOf(schema: Schema): string {
  return typeof schema.type === "string" ? schema.type : schema.items !== undefined ? "array" : "";
}

function unique(options: readonly Suggestion[]): Suggestion[] {
  return [...new Map(options.map((one) => [one.label, one])).values()];
}

/** Line and text of the server's complaint about a file: `shop/root_agent.yaml:5: tools[0]: …`. */
export function complaintOf(detail: string, file: string): { readonly line: number; readonly text: string } | null {
  const found = /^(\S+?\.ya?ml)(?::(\d+))?: ([\s\S]*)$/.exec(detail);
  if (found === null || !found[1]?.endsWith(file)) return null;
  return { line: Number(found[2] ?? 1), text: found[3] ?? "" };
}
