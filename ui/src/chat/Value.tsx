import type { JsonObject, JsonValue } from "greenroom-client";
import { useState } from "react";
import { JsonView } from "../components/JsonView";

const LONG = 240;
const LONG_LINES = 800;
const LONG_TREE = 80;

/** A value on one line, or on the lines of a text that has several; long ones fold, maps and lists open as a tree, images are shown. */
export function Value({ value }: { value: JsonValue }) {
  const [isOpen, setOpen] = useState(false);
  const image = imageOf(value);
  if (image !== null) return <img className="value-image" src={image} alt="Image" />;
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const isTree = typeof value === "object" && value !== null;
  const hasLines = !isTree && text.trim().includes("\n");
  const limit = isTree ? LONG_TREE : hasLines ? LONG_LINES : LONG;
  const look = hasLines ? "value value-lines" : "value";
  if (text.length <= limit) return <span className={look}>{hasLines ? text.replace(/^\n+|\s+$/g, "") : text}</span>;
  return (
    <span className={look}>
      {isOpen ? isTree ? <JsonView value={value} /> : <span className="value-whole">{text}</span> : `${text.slice(0, limit)}… `}
      <button type="button" className="link" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        {isOpen ? "less" : `all ${text.length.toLocaleString()} characters`}
      </button>
    </span>
  );
}

/** The address of an image in a result, as tools that control a computer return it. */
function imageOf(value: JsonValue): string | null {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return null;
  const { mimetype, data } = value as JsonObject;
  if (typeof mimetype !== "string" || !mimetype.startsWith("image/") || typeof data !== "string") return null;
  return `data:${mimetype};base64,${data}`;
}

/** `key: value` lines of a map. */
export function Fields({ of, label }: { of: { readonly [key: string]: JsonValue }; label: string }) {
  const entries = Object.entries(of);
  if (entries.length === 0) return null;
  return (
    <dl className="fields" aria-label={label}>
      {entries.map(([key, value]) => (
        <div key={key} className="field">
          <dt>{key}</dt>
          <dd>
            <Value value={value} />
          </dd>
        </div>
      ))}
    </dl>
  );
}
