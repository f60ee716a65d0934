import { useEffect, useRef } from "react";

const KEYS = [
  ["j / k", "Next or previous event"],
  ["Enter", "Open the event in the inspector"],
  ["Esc", "Close the inspector, leave the message"],
  ["/", "Write a message"],
  ["⌘K", "Command palette"],
  ["?", "This list"],
] as const;

/** Lists the keys. */
export function Keys({ close }: { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} className="keys" aria-label="Keys" onClose={close}>
      <h2>Keys</h2>
      <dl>
        {KEYS.map(([key, what]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <button type="button" className="button" onClick={close}>
        Close
      </button>
    </dialog>
  );
}
