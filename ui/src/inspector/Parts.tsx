import type { ReactNode } from "react";
import type { JsonObject, Part } from "greenroom-client";
import { JsonView } from "../components/JsonView";
import { asJson, size } from "./format";

/** The parts of a content: texts as they are, calls and responses with their values, files by type and size. */
export function Parts({ parts }: { parts: readonly Part[] }) {
  return (
    <div className="parts">
      {parts.map((part, at) => (
        <PartView key={at} part={part} />
      ))}
    </div>
  );
}

function PartView({ part }: { part: Part }) {
  const { text, functionCall: call, functionResponse: response, inlineData: blob, fileData: file } = part;
  if (text !== undefined) {
    return (
      <div>
        {part.thought === true && <div className="soft label">Thought</div>}
        <pre className="wrapped">{text}</pre>
      </div>
    );
  }
  if (call !== undefined) return <Named label="Calls" name={call.name} value={call.args ?? {}} />;
  if (response !== undefined) return <Named label="Returned by" name={response.name} value={response.response ?? {}} />;
  if (blob !== undefined) {
    const bytes = Math.floor(((blob.data?.length ?? 0) * 3) / 4);
    return <div className="soft">{`${blob.displayName ?? "File"} · ${blob.mimeType ?? "unknown type"} · ${size(bytes)}`}</div>;
  }
  if (file !== undefined) return <div className="soft">{`${file.displayName ?? file.fileUri ?? "File"} · ${file.mimeType ?? ""}`}</div>;
  return <JsonView value={asJson(part)} />;
}

function Named({ label, name, value }: { label: string; name: string; value: JsonObject }) {
  return (
    <div>
      <div>
        <span className="soft">{label}</span> <code>{name}</code>
      </div>
      <JsonView value={value} />
    </div>
  );
}

/** Names and values in two columns; rows without a value are left out. */
export function Facts({ facts }: { facts: readonly (readonly [string, ReactNode])[] }) {
  const shown = facts.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  return (
    <dl className="facts">
      {shown.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

