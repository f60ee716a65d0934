import { useQuery } from "@tanstack/react-query";
import type { AgentChange, FieldChange, FileChange, FunctionDeclaration, JsonValue, ToolChange } from "greenroom-client";
import { client } from "../api";
import { AgentName } from "../components/AgentName";
import { ErrorLine } from "../components/ErrorLine";
import { Diff } from "./Diff";

const TONES = { added: "ok", removed: "bad", changed: "wait" } as const;
const NAMES: Readonly<Record<string, string>> = {
  kind: "Class",
  description: "Description",
  instruction: "Instruction",
  global_instruction: "Global instruction",
  model: "Model",
  sub_agents: "Sub-agents",
};

/** What differs between two versions: what models see of the agents, and the files. */
export function Comparison({ app, first, second }: { app: string; first: string; second: string }) {
  const compared = useQuery({
    queryKey: ["compared versions", app, first, second],
    queryFn: () => client.compareVersions(app, first, second),
  });
  if (compared.isError) return <ErrorLine error={compared.error} />;
  if (compared.data === undefined) return <p className="soft">Loading…</p>;
  const { agents, files } = compared.data;
  if (agents.length === 0 && files.length === 0) return <p>The versions are equal.</p>;
  return (
    <div className="version-comparison">
      <section aria-label="Agents">
        <h3>Agents</h3>
        {agents.length === 0 && <p className="soft">Models see the same: only files differ.</p>}
        {agents.map((agent) => (
          <Agent key={agent.name} agent={agent} />
        ))}
      </section>
      <section aria-label="Files">
        <h3>Files</h3>
        {files.map((file) => (
          <File key={file.path} file={file} />
        ))}
      </section>
    </div>
  );
}

function Mark({ change }: { change: AgentChange["change"] }) {
  return <span className={`status ${TONES[change]}`}>{change}</span>;
}

function Agent({ agent }: { agent: AgentChange }) {
  return (
    <article className="agent-change">
      <h4 className="row">
        <AgentName name={agent.name} />
        <Mark change={agent.change} />
      </h4>
      {agent.fields.map((field) => (
        <Field key={field.field} field={field} />
      ))}
      {agent.tools.map((tool) => (
        <Tool key={tool.name} tool={tool} />
      ))}
    </article>
  );
}

function Field({ field }: { field: FieldChange }) {
  const name = NAMES[field.field] ?? field.field.replace(/^settings\./, "").replaceAll("_", " ");
  return (
    <div className="field-change">
      <h5>{name}</h5>
      {field.diff != null ? <Diff text={field.diff} label={`${name}, differences`} /> : <Values before={field.before} after={field.after} />}
    </div>
  );
}

function Values({ before, after }: { before: JsonValue; after: JsonValue }) {
  return (
    <p className="values">
      {before !== null && <del>{shown(before)}</del>}
      {after !== null && <ins>{shown(after)}</ins>}
    </p>
  );
}

function shown(value: JsonValue): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function Tool({ tool }: { tool: ToolChange }) {
  return (
    <div className="field-change">
      <h5 className="row">
        Tool <code>{tool.name}</code> <Mark change={tool.change} />
      </h5>
      {tool.change === "changed" ? (
        <details>
          <summary>Declarations</summary>
          <div className="declarations">
            <Declaration tool={tool.before} label="Before" />
            <Declaration tool={tool.after} label="After" />
          </div>
        </details>
      ) : (
        <p className="soft">{(tool.before ?? tool.after)?.description}</p>
      )}
    </div>
  );
}

function Declaration({ tool, label }: { tool: FunctionDeclaration | null; label: string }) {
  return (
    <div>
      <span className="soft">{label}</span>
      <pre role="region" aria-label={label} tabIndex={0}>
        {JSON.stringify(tool, null, 2)}
      </pre>
    </div>
  );
}

function File({ file }: { file: FileChange }) {
  return (
    <details className="file-change">
      <summary>
        <code>{file.path}</code> <Mark change={file.change} />
      </summary>
      {file.diff !== null ? <Diff text={file.diff} label={`${file.path}, differences`} /> : <p className="soft">Not text, or too long to compare.</p>}
    </details>
  );
}
