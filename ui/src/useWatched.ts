import { useEffect, useRef, useState } from "react";
import { SERVER, call } from "./api";

/** page: undefined before the first answer. */
export type Watched<Page> = { readonly page: Page | undefined; readonly error: Error | null };

type Watching<Page, Item> = {
  /** A page with records that have changed since. */
  readonly merge: (page: Page, changed: readonly Item[]) => Page;
  /** Called with each batch of changes. */
  readonly onChange?: ((changed: readonly Item[]) => void) | undefined;
};

/** A page of a list, kept up to date by the server's stream of it. path: null ends the stream and keeps the page. */
export function useWatched<Page, Item>(path: string | null, watching: Watching<Page, Item>): Watched<Page> {
  const [watched, setWatched] = useState<{ path: string } & Watched<Page>>({ path: "", page: undefined, error: null });
  const current = useRef(watching);
  current.current = watching;
  useEffect(() => {
    if (path === null) return undefined;
    const stream = new EventSource(`${SERVER}${path}`);
    let pending: Item[] = [];
    let frame = 0;
    stream.addEventListener("snapshot", (message) => {
      pending = [];
      setWatched({ path, page: JSON.parse((message as MessageEvent<string>).data) as Page, error: null });
    });
    stream.onmessage = (message: MessageEvent<string>) => {
      pending.push(JSON.parse(message.data) as Item);
      frame ||= requestAnimationFrame(flush);
    };
    stream.onerror = () => {
      if (stream.readyState !== EventSource.CLOSED) return; // it connects again by itself
      // Refused: an ordinary request says why.
      call("GET", path).then(
        () => fail(new Error("The connection was lost; reload the page")),
        (error: unknown) => fail(error as Error),
      );
    };
    function fail(error: Error) {
      setWatched((before) => ({ path: path ?? "", page: before.path === path ? before.page : undefined, error }));
    }
    function flush() {
      frame = 0;
      const changed = pending;
      pending = [];
      current.current.onChange?.(changed);
      setWatched((before) => (before.page === undefined ? before : { ...before, page: current.current.merge(before.page, changed) }));
    }
    return () => {
      stream.close();
      cancelAnimationFrame(frame);
    };
  }, [path]);
  // Of another path nothing is known yet.
  return path === null || watched.path === path ? watched : { page: undefined, error: null };
}
