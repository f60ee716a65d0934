import type { Part } from "greenroom-client";
import { Mic, Paperclip, SendHorizontal, Square, X } from "lucide-react";
import { type ClipboardEvent, type DragEvent, type KeyboardEvent, useEffect, useRef, useState } from "react";
import { type Strategy, isStreaming, setStreaming } from "./actions";

type Attachment = { readonly name: string; readonly type: string; readonly size: number; readonly data: string };

export type ComposerProps = {
  /** The id of the active run, for which a message waits, which reads it or which it stops. */
  readonly activeRun: string | null;
  readonly placeholder: string;
  readonly send: (parts: readonly Part[], streaming: boolean, strategy: Strategy) => Promise<void>;
  readonly stop: () => void;
  /** Begins a live conversation, where the app can. */
  readonly talk: (() => void) | null;
};

const MOST_ROWS = 12;

const STRATEGIES = {
  enqueue: { verb: "Enqueue", effect: "after this run" },
  steer: { verb: "Steer", effect: "read at its next step" },
  interrupt: { verb: "Interrupt", effect: "stops this run" },
} as const satisfies Record<Strategy, unknown>;

/** Multi-line message with attachments. Enter sends, Shift+Enter makes a new line. */
export function Composer({ activeRun, placeholder, send, stop, talk }: ComposerProps) {
  const [text, setText] = useState("");
  const [files, setFiles] = useState<readonly Attachment[]>([]);
  const [streams, setStreams] = useState(isStreaming);
  const [strategy, setStrategy] = useState<Strategy>("enqueue");
  const [isDropping, setDropping] = useState(false);
  const box = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);

  useEffect(() => {
    const area = box.current;
    if (area === null) return;
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight + 2, MOST_ROWS * 20 + 16)}px`;
  }, [text]);

  async function attach(list: Iterable<File>) {
    const added = await Promise.all([...list].map(readFile));
    setFiles((before) => [...before, ...added]);
  }

  async function submit() {
    const parts: Part[] = files.map(({ name, type, data }) => ({ inlineData: { data, mimeType: type, displayName: name } }));
    if (text.trim() !== "") parts.push({ text });
    if (parts.length === 0) return;
    const [sentText, sentFiles] = [text, files];
    setText("");
    setFiles([]);
    try {
      await send(parts, streams, activeRun === null ? "enqueue" : strategy);
    } catch {
      setText((now) => (now === "" ? sentText : now)); // the page shows the error; nothing that was written is lost
      setFiles((now) => (now.length === 0 ? sentFiles : now));
    }
  }

  function onKeyDown(event: KeyboardEvent<HTMLTextAreaElement>) {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    void submit();
  }

  function onPaste(event: ClipboardEvent<HTMLTextAreaElement>) {
    if (event.clipboardData.files.length === 0) return;
    event.preventDefault();
    void attach(event.clipboardData.files);
  }

  function onDrop(event: DragEvent<HTMLFormElement>) {
    event.preventDefault();
    setDropping(false);
    void attach(event.dataTransfer.files);
  }

  return (
    <form
      className={`composer${isDropping ? " dropping" : ""}`}
      aria-label="Message"
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
      onDragOver={(event) => {
        event.preventDefault();
        setDropping(true);
      }}
      onDragLeave={() => setDropping(false)}
      onDrop={onDrop}
    >
      {files.length > 0 && (
        <ul className="attachments" aria-label="Attachments">
          {files.map((file, index) => (
            <li key={`${file.name}:${index}`} className="attachment">
              {file.type.startsWith("image/") && <img src={`data:${file.type};base64,${file.data}`} alt="" />}
              <span className="attachment-name" title={file.name}>
                {file.name}
              </span>
              <span className="soft">{size(file.size)}</span>
              <button
                type="button"
                className="button quiet small"
                aria-label={`Remove ${file.name}`}
                onClick={() => setFiles(files.toSpliced(index, 1))}
              >
                <X size={14} aria-hidden="true" />
              </button>
            </li>
          ))}
        </ul>
      )}
      <textarea
        ref={box}
        id="composer"
        className="textarea"
        rows={1}
        aria-label="Message"
        placeholder={placeholder}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={onKeyDown}
        onPaste={onPaste}
      />
      <div className="composer-bar">
        <button type="button" className="button quiet" title="Attach files" onClick={() => picker.current?.click()}>
          <Paperclip size={16} aria-hidden="true" />
          <span className="hidden">Attach files</span>
        </button>
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          onChange={(event) => {
            void attach(event.target.files ?? []);
            event.target.value = "";
          }}
        />
        {talk !== null && (
          <button type="button" className="button quiet" title="Talk (live voice and camera)" onClick={talk}>
            <Mic size={16} aria-hidden="true" />
            <span className="hidden">Talk</span>
          </button>
        )}
        <label className="switch">
          <input
            type="checkbox"
            checked={streams}
            onChange={(event) => {
              setStreams(event.target.checked);
              setStreaming(event.target.checked);
            }}
          />
          Streaming
        </label>
        <span className="spread" />
        {activeRun !== null && (
          <select
            className="select composer-strategy"
            aria-label="While the run is active"
            value={strategy}
            onChange={(event) => setStrategy(event.target.value as Strategy)}
          >
            {Object.entries(STRATEGIES).map(([name, { verb, effect }]) => (
              <option key={name} value={name}>
                {verb}: {effect}
              </option>
            ))}
          </select>
        )}
        {activeRun !== null && (
          <button type="button" className="button" onClick={stop}>
            <Square size={14} aria-hidden="true" />
            Stop
          </button>
        )}
        <button type="submit" className="button primary" disabled={text.trim() === "" && files.length === 0}>
          <SendHorizontal size={16} aria-hidden="true" />
          {activeRun === null ? "Send" : STRATEGIES[strategy].verb}
        </button>
      </div>
    </form>
  );
}

export function size(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  return bytes < 1_000_000 ? `${(bytes / 1000).toFixed(0)} kB` : `${(bytes / 1_000_000).toFixed(1)} MB`;
}

function readFile(file: File): Promise<Attachment> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => {
      const data = String(reader.result).split(",", 2)[1] ?? "";
      resolve({ name: file.name, type: file.type || "application/octet-stream", size: file.size, data });
    };
    reader.onerror = () => reject(reader.error ?? new Error(`${file.name} could not be read`));
    reader.readAsDataURL(file);
  });
}
