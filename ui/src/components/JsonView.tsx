import type { JsonValue } from "greenroom-client";

const OPEN_LEVELS = 2;
const MOST_CHILDREN = 200;

/** A JSON value as a tree that folds. name: of the value in its parent. */
export function JsonView({ value, name, level = 0 }: { value: JsonValue; name?: string; level?: number }) {
  const label = name !== undefined && <span className="json-key">{name}: </span>;
  if (typeof value !== "object" || value === null) {
    return (
      <div className={level === 0 ? "json" : undefined}>
        {label}
        <span className={typeof value === "string" ? "json-string" : "json-other"}>{JSON.stringify(value)}</span>
      </div>
    );
  }
  const entries: readonly (readonly [string, JsonValue])[] = Object.entries(value as Record<string, JsonValue>);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (entries.length === 0) {
    return (
      <div className={level === 0 ? "json" : undefined}>
        {label}
        {open + close}
      </div>
    );
  }
  return (
    <div className={level === 0 ? "json" : undefined}>
      <details open={level < OPEN_LEVELS}>
        <summary>
          {label}
          <span className="soft">{`${open}${entries.length}${close}`}</span>
        </summary>
        {entries.slice(0, MOST_CHILDREN).map(([key, child]) => (
          <JsonView key={key} name={key} value={child} level={level + 1} />
        ))}
        {entries.length > MOST_CHILDREN && <div className="soft">… {entries.length - MOST_CHILDREN} more</div>}
      </details>
    </div>
  );
}
