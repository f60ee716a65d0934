/** The command palette; `close` is called when it is dismissed. */
export default function Palette({ close }: { close: () => void }) {
  return <dialog open className="palette" onClick={close} />;
}
