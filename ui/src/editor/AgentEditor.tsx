import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useBlocker } from "@tanstack/react-router";
import { GreenroomError } from "greenroom-client";
import { useId, useMemo, useState } from "react";
import { SERVER, call, client } from "../api";
import { ErrorLine } from "../components/ErrorLine";
import { reload } from "../reload";
import { YamlEditor } from "./YamlEditor";
import { type Schema, complaintOf } from "./schema";
import "./editor.css";

export const ROOT_FILE = "root_agent.yaml";

type Files = { readonly names: readonly string[] };

/** The YAML files of an app, each with its unsaved text; all of those are saved together. */
export function AgentEditor({ app }: { app: string }) {
  const schema = useSchema();
  const files = useQuery({ queryKey: ["agent files", app], queryFn: () => call<Files>("GET", `${pathOf(app)}/files`) });
  const [chosen, choose] = useState<string | null>(null);
  const [edited, setEdited] = useState<{ readonly [name: string]: string }>({});
  const cache = useQueryClient();
  const saving = useMutation({
    mutationFn: () => saveFiles(app, edited),
    onSuccess: async () => {
      await reload(cache, ["agent file", app]);
      setEdited({});
      await reload(cache, ["apps"]);
    },
  });
  const unsaved = Object.keys(edited);
  useBlocker({ shouldBlockFn: () => unsaved.length > 0 && !confirm("Leave without saving the changes?"), enableBeforeUnload: unsaved.length > 0 });
  const error = schema.error ?? files.error;
  if (error !== null) return <ErrorLine error={error} />;
  if (schema.data === undefined || files.data === undefined) return <p className="soft">Loading…</p>;
  const { names } = files.data;
  const name = chosen ?? names.find((one) => one === ROOT_FILE) ?? names[0];
  if (name === undefined) return <p className="soft">This app has no YAML files; its agents are written in Python.</p>;
  return (
    <div className="agent-editor">
      <div className="row">
        <select className="select" aria-label="File" value={name} onChange={(event) => choose(event.target.value)}>
          {names.map((one) => (
            <option key={one} value={one}>
              {one in edited ? `${one} •` : one}
            </option>
          ))}
        </select>
        <span className="spread" />
        <button type="button" className="button" disabled={unsaved.length === 0} onClick={() => setEdited({})}>
          Revert
        </button>
        <button type="button" className="button primary" disabled={unsaved.length === 0 || saving.isPending} onClick={() => saving.mutate()}>
          {unsaved.length > 1 ? `Save ${unsaved.length} files` : "Save"}
        </button>
      </div>
      <OneFile
        key={name}
        app={app}
        name={name}
        schema={schema.data}
        edited={edited[name]}
        error={saving.error}
        onSave={() => unsaved.length > 0 && saving.mutate()}
        onChange={(text, stored) => {
          saving.reset();
          setEdited(({ [name]: _, ...others }) => (text === stored ? others : { ...others, [name]: text }));
        }}
      />
      <p className="soft" role="status">
        {saving.isSuccess && unsaved.length === 0
          ? "Saved. Runs that are running keep the agents they started with."
          : unsaved.length > 0
            ? `Not saved: ${unsaved.join(", ")}`
            : "Ctrl+Space completes keys and values; Ctrl+S saves. Nothing is written unless the agents can be built."}
      </p>
    </div>
  );
}

function OneFile({ app, name, schema, edited, error, onChange, onSave }: {
  app: string;
  name: string;
  schema: Schema;
  edited: string | undefined;
  error: unknown;
  onChange: (text: string, stored: string) => void;
  onSave: () => void;
}) {
  const file = useQuery({ queryKey: ["agent file", app, name], queryFn: () => readFile(app, name), staleTime: Number.POSITIVE_INFINITY });
  const complaint = useMemo(() => (error instanceof GreenroomError ? complaintOf(error.message, name) : null), [error, name]);
  if (file.isError) return <ErrorLine error={file.error} />;
  if (file.data === undefined) return <p className="soft">Loading…</p>;
  const stored = file.data;
  return (
    <>
      <YamlEditor
        text={edited ?? stored}
        schema={schema}
        label={name}
        complaint={complaint}
        onChange={(text) => onChange(text, stored)}
        onSave={onSave}
      />
      {error != null && <ErrorLine error={complaint === null ? error : new Error(`Line ${complaint.line}: ${complaint.text}`)} />}
    </>
  );
}

/** Asks for a name, and makes an app with one agent. */
export function NewApp({ names, onMade }: { names: readonly string[]; onMade: (app: string) => void }) {
  const [name, setName] = useState("");
  const cache = useQueryClient();
  const making = useMutation({
    mutationFn: () => saveFiles(name, { [ROOT_FILE]: firstAgent(name) }),
    onSuccess: async () => {
      await reload(cache, ["apps"]);
      onMade(name);
    },
  });
  const fault = name === "" ? "" : !/^[A-Za-z_]\w*$/.test(name) ? "Letters, digits and _ only, no digit first." : names.includes(name) ? "There is an app of this name." : "";
  const id = useId();
  return (
    <form
      className="new-app"
      onSubmit={(event) => {
        event.preventDefault();
        if (name !== "" && fault === "") making.mutate();
      }}
    >
      <label htmlFor={id}>New app</label>
      <input id={id} className="input" value={name} placeholder="my_agent" autoComplete="off" aria-describedby={`${id}-fault`} onChange={(event) => setName(event.target.value)} />
      <button type="submit" className="button" disabled={name === "" || fault !== "" || making.isPending}>
        Create
      </button>
      <span id={`${id}-fault`} className="status bad" role="status">
        {fault}
      </span>
      {making.error !== null && <ErrorLine error={making.error} />}
    </form>
  );
}

function firstAgent(name: string): string {
  return `name: ${name}\nmodel: local/smollm2-135m\ndescription: What it is good for.\ninstruction: |\n  Answer briefly.\n`;
}

function useSchema() {
  return useQuery({ queryKey: ["agent schema"], queryFn: () => call<Schema>("GET", "/dev/builder/schema"), staleTime: Number.POSITIVE_INFINITY });
}

function pathOf(app: string): string {
  return `/dev/apps/${encodeURIComponent(app)}/builder`;
}

async function readFile(app: string, name: string): Promise<string> {
  const reply = await fetch(`${SERVER}${pathOf(app)}?file_path=${encodeURIComponent(name)}`);
  if (!reply.ok) throw new Error(`${name} can't be read: ${reply.statusText}`);
  return reply.text();
}

async function saveFiles(app: string, files: { readonly [name: string]: string }): Promise<void> {
  const form = new FormData();
  for (const [name, text] of Object.entries(files)) form.append("files", new File([text], `${app}/${name}`, { type: "application/x-yaml" }));
  const encoded = new Response(form);
  const headers = { "content-type": encoded.headers.get("content-type") ?? "" };
  await client.request(`${pathOf(app)}/save`, { method: "POST", body: await encoded.blob(), headers });
}
