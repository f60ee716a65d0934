import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Download, Upload } from "lucide-react";
import { type DragEvent, useId, useState } from "react";
import { SERVER, type SessionPlace, client, sessionPath } from "../api";
import { Empty } from "../components/Empty";
import { ErrorLine } from "../components/ErrorLine";
import { Time } from "../components/Time";
import { reload } from "../reload";
import { size } from "./format";
import type { InspectorProps } from "./props";

const MOST_TEXT_BYTES = 200_000;

function url(place: SessionPlace, name: string, version: number): string {
  return `${SERVER}${sessionPath(place)}/artifacts/${encodeURIComponent(name)}/versions/${version}/content`;
}

/** The session's artifacts: versions, preview, download, and upload of new ones. */
export function Artifacts({ place, chosen, timeline }: InspectorProps) {
  const queries = useQueryClient();
  const key = ["artifacts", place.app, place.user, place.session];
  const names = useQuery({
    queryKey: [...key, timeline.lastSeq],
    queryFn: () => client.listArtifacts(place),
    placeholderData: (previous) => previous,
  });
  const upload = useMutation({
    mutationFn: async (files: readonly File[]) => {
      for (const file of files) await client.saveArtifact(place, file.name, file);
    },
    onSettled: () => reload(queries, key),
  });
  const [isOver, setOver] = useState(false);
  const input = useId();
  const saved = chosen.event.actions.artifactDelta ?? {};
  function drop(event: DragEvent) {
    event.preventDefault();
    setOver(false);
    upload.mutate([...event.dataTransfer.files]);
  }
  return (
    <div
      className={isOver ? "panel drop" : "panel"}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={drop}
    >
      <div className="row">
        <span className="soft spread">Drop files here, or</span>
        <label className="button small" htmlFor={input}>
          <Upload size={14} aria-hidden="true" />
          Upload
        </label>
        <input
          id={input}
          type="file"
          multiple
          className="hidden"
          onChange={(event) => {
            upload.mutate([...(event.target.files ?? [])]);
            event.target.value = "";
          }}
        />
      </div>
      {upload.isError && <ErrorLine error={upload.error} />}
      {names.isError && <ErrorLine error={names.error} />}
      {names.data?.length === 0 && (
        <Empty title="No artifacts yet">
          <p>
            Files that a tool saves with <code>await tool_context.save_artifact("report.pdf", part)</code> are here, each with all
            its versions.
          </p>
        </Empty>
      )}
      <ul className="artifacts">
        {names.data?.map((name) => (
          <Artifact key={name} place={place} name={name} saved={saved[name]} lastSeq={timeline.lastSeq} />
        ))}
      </ul>
    </div>
  );
}

/** saved: the version that the chosen event saved, if it did. */
function Artifact(props: { place: SessionPlace; name: string; saved: number | undefined; lastSeq: number }) {
  const { place, name, saved, lastSeq } = props;
  const versions = useQuery({
    queryKey: ["artifacts", place.app, place.user, place.session, name, lastSeq],
    queryFn: () => client.listArtifactVersions(place, name),
    placeholderData: (previous) => previous,
  });
  const [wanted, setWanted] = useState<number | null>(null);
  const newest = versions.data?.at(-1);
  const shown = versions.data?.find((one) => one.version === (wanted ?? saved)) ?? newest;
  return (
    <li className="artifact">
      <div className="row">
        <strong className="cut" title={name}>
          {name}
        </strong>
        {saved !== undefined && <span className="tree-mark">saved by this event</span>}
        <span className="spread" />
        {shown !== undefined && (
          <>
            <select
              className="select"
              aria-label={`Version of ${name}`}
              value={shown.version}
              onChange={(event) => setWanted(Number(event.target.value))}
            >
              {versions.data?.map((one) => (
                <option key={one.version} value={one.version}>
                  Version {one.version}
                </option>
              ))}
            </select>
            <a
              className="button small"
              href={url(place, name, shown.version)}
              download={name.split("/").at(-1)}
              title={`Download ${name}`}
            >
              <Download size={14} aria-hidden="true" />
              <span className="hidden">Download {name}</span>
            </a>
          </>
        )}
      </div>
      {versions.isError && <ErrorLine error={versions.error} />}
      {shown !== undefined && (
        <>
          <div className="soft">
            {shown.mimeType ?? "unknown type"} · <Time at={shown.createTime} isRelative />
          </div>
          <Preview place={place} name={name} version={shown.version} type={shown.mimeType ?? ""} />
        </>
      )}
    </li>
  );
}

type Shown = { readonly place: SessionPlace; readonly name: string; readonly version: number };

function Preview({ type, ...shown }: Shown & { readonly type: string }) {
  const src = url(shown.place, shown.name, shown.version);
  if (type.startsWith("image/")) return <img className="preview" src={src} alt={shown.name} />;
  if (type.startsWith("audio/")) return <audio className="preview" src={src} controls />;
  if (type.startsWith("video/")) return <video className="preview" src={src} controls />;
  if (type.startsWith("text/") || /[/+](json|yaml|xml)$/.test(type)) return <TextPreview {...shown} />;
  return <p className="soft">No preview of this type; download it.</p>;
}

function TextPreview({ place, name, version }: Shown) {
  const text = useQuery({
    queryKey: ["text", url(place, name, version)],
    queryFn: async () => {
      const data = await client.loadArtifact(place, name, version);
      const start = await data.slice(0, MOST_TEXT_BYTES).text();
      return data.size > MOST_TEXT_BYTES ? `${start}\n… ${size(data.size - MOST_TEXT_BYTES)} more` : start;
    },
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (text.isError) return <ErrorLine error={text.error} />;
  return <pre className="wrapped preview-text">{text.data ?? "Loading…"}</pre>;
}
