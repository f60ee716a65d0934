import { useQuery } from "@tanstack/react-query";
import { Maximize2, ZoomIn, ZoomOut } from "lucide-react";
import { type KeyboardEvent, type PointerEvent, useEffect, useRef, useState } from "react";
import { type SessionPlace, call, sessionPath } from "../api";
import { Empty } from "../components/Empty";
import { ErrorLine } from "../components/ErrorLine";
import { useIsDark } from "../media";

type Drawing = { readonly dotSrc?: string };

/** Graphviz in WebAssembly (1.5 MB), loaded with the first graph. */
async function draw(dot: string): Promise<SVGSVGElement> {
  const { instance } = await import("@viz-js/viz");
  // The page's own background, and no symbols that need a font which many machines don't have.
  const plain = dot.replace(/bgcolor="[^"]*"/, 'bgcolor="transparent"').replaceAll(/label="\p{Extended_Pictographic}\uFE0F? /gu, 'label="');
  return (await instance()).renderSVGElement(plain, { nodeAttributes: { fontname: "Helvetica", fontsize: 13 } });
}

/** The app's graph with the agents and tools of an event highlighted. */
export default function Graph({ place, eventId }: { place: SessionPlace; eventId: string }) {
  return <GraphOf path={`${sessionPath(place)}/events/${encodeURIComponent(eventId)}/graph?dark_mode=${useIsDark()}`} />;
}

/** The graph that the server draws under a path. */
export function GraphOf({ path }: { path: string }) {
  const drawing = useQuery({
    queryKey: ["graph", path],
    queryFn: async () => {
      const { dotSrc } = await call<Drawing>("GET", path);
      return dotSrc === undefined || dotSrc === "" ? null : await draw(dotSrc);
    },
  });
  if (drawing.isPending) return <p className="soft panel">Drawing…</p>;
  if (drawing.isError) return <ErrorLine error={drawing.error} />;
  if (drawing.data === null) {
    return (
      <Empty title="No graph for this event">
        <p>The server draws the agents and tools of stored events.</p>
      </Empty>
    );
  }
  return <Canvas svg={drawing.data} />;
}

type View = { readonly x: number; readonly y: number; readonly scale: number };
const START: View = { x: 0, y: 0, scale: 1 };

/** A picture that is moved by dragging and arrow keys, and zoomed by the wheel, + and -. */
function Canvas({ svg }: { svg: SVGSVGElement }) {
  const [view, setView] = useState(START);
  const box = useRef<HTMLDivElement>(null);
  const holder = useRef<HTMLDivElement>(null);
  const grabbed = useRef<{ readonly x: number; readonly y: number } | null>(null);
  useEffect(() => {
    const copy = svg.cloneNode(true) as SVGSVGElement;
    copy.setAttribute("width", "100%");
    copy.setAttribute("height", "100%");
    copy.setAttribute("aria-hidden", "true");
    for (const title of copy.querySelectorAll("title")) title.remove();
    holder.current?.replaceChildren(copy);
  }, [svg]);
  useEffect(() => {
    const element = box.current;
    function onWheel(event: globalThis.WheelEvent) {
      event.preventDefault();
      const edges = element?.getBoundingClientRect();
      if (edges === undefined) return;
      zoomAt(Math.exp(-event.deltaY / 300), event.clientX - edges.left, event.clientY - edges.top);
    }
    element?.addEventListener("wheel", onWheel, { passive: false });
    return () => element?.removeEventListener("wheel", onWheel);
  }, []);

  function zoomAt(factor: number, x: number, y: number) {
    setView((old) => {
      const scale = Math.min(Math.max(old.scale * factor, 0.2), 12);
      const by = scale / old.scale;
      return { scale, x: x - (x - old.x) * by, y: y - (y - old.y) * by };
    });
  }
  function zoomBy(factor: number) {
    const edges = box.current?.getBoundingClientRect();
    if (edges !== undefined) zoomAt(factor, edges.width / 2, edges.height / 2);
  }
  function onPointerMove(event: PointerEvent) {
    const from = grabbed.current;
    if (from === null) return;
    grabbed.current = { x: event.clientX, y: event.clientY };
    setView((old) => ({ ...old, x: old.x + event.clientX - from.x, y: old.y + event.clientY - from.y }));
  }
  function onKeyDown(event: KeyboardEvent) {
    const moves: Readonly<Record<string, readonly [number, number]>> = {
      ArrowLeft: [40, 0],
      ArrowRight: [-40, 0],
      ArrowUp: [0, 40],
      ArrowDown: [0, -40],
    };
    const move = moves[event.key];
    if (move !== undefined) setView((old) => ({ ...old, x: old.x + move[0], y: old.y + move[1] }));
    else if (event.key === "+" || event.key === "=") zoomBy(1.3);
    else if (event.key === "-") zoomBy(1 / 1.3);
    else if (event.key === "0") setView(START);
    else return;
    event.preventDefault();
  }
  const names = [...svg.querySelectorAll("g.node text")].map((text) => text.textContent ?? "");
  return (
    <div className="graph">
      <div className="row graph-tools">
        <button type="button" className="button small" onClick={() => zoomBy(1.3)}>
          <ZoomIn size={16} aria-hidden="true" />
          <span className="hidden">Zoom in</span>
        </button>
        <button type="button" className="button small" onClick={() => zoomBy(1 / 1.3)}>
          <ZoomOut size={16} aria-hidden="true" />
          <span className="hidden">Zoom out</span>
        </button>
        <button type="button" className="button small" onClick={() => setView(START)}>
          <Maximize2 size={16} aria-hidden="true" />
          <span className="hidden">Fit</span>
        </button>
      </div>
      <div
        ref={box}
        className="graph-box"
        role="img"
        aria-label={`Graph of ${names.join(", ")}`}
        tabIndex={0}
        onKeyDown={onKeyDown}
        onPointerDown={(event) => {
          grabbed.current = { x: event.clientX, y: event.clientY };
          event.currentTarget.setPointerCapture(event.pointerId);
        }}
        onPointerMove={onPointerMove}
        onPointerUp={() => {
          grabbed.current = null;
        }}
      >
        <div ref={holder} className="graph-holder" style={{ transform: `translate(${view.x}px, ${view.y}px) scale(${view.scale})` }} />
      </div>
    </div>
  );
}
