import { type KeyboardEvent, type PointerEvent, type ReactNode, useState } from "react";

const KEY = "greenroom.inspector";
const [LEAST, MOST, STEP] = [320, 720, 16];

/** A pane at the right whose width is remembered. */
export function ResizablePane({ children }: { children: ReactNode }) {
  const [width, setWidth] = useState(() => clamp(Number(localStorage.getItem(KEY)) || 440));
  function change(wanted: number) {
    const kept = clamp(wanted);
    setWidth(kept);
    localStorage.setItem(KEY, String(kept));
  }
  function onPointerMove(event: PointerEvent<HTMLDivElement>) {
    if (event.currentTarget.hasPointerCapture(event.pointerId)) change(innerWidth - event.clientX);
  }
  function onKeyDown(event: KeyboardEvent<HTMLDivElement>) {
    if (event.key === "ArrowLeft") change(width + STEP);
    if (event.key === "ArrowRight") change(width - STEP);
  }
  return (
    <div className="pane" style={{ width }}>
      <div
        className="pane-edge"
        role="separator"
        aria-label="Width of the inspector"
        aria-orientation="vertical"
        aria-valuenow={width}
        aria-valuemin={LEAST}
        aria-valuemax={MOST}
        tabIndex={0}
        onPointerDown={(event) => event.currentTarget.setPointerCapture(event.pointerId)}
        onPointerMove={onPointerMove}
        onKeyDown={onKeyDown}
      />
      <div className="pane-content">{children}</div>
    </div>
  );
}

function clamp(width: number): number {
  return Math.min(Math.max(width, LEAST), MOST);
}
