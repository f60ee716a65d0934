import { useEffect, useState, useSyncExternalStore } from "react";
import type { SessionPlace } from "../api";
import { SessionFeed, type Snapshot } from "./feed";

/** A session's timeline, followed while the component is mounted. */
export function useSession({ app, user, session }: SessionPlace): { feed: SessionFeed; snapshot: Snapshot } {
  const place = `${app}\n${user}\n${session}`;
  const [held, setHeld] = useState(() => ({ place, feed: new SessionFeed({ app, user, session }) }));
  let feed = held.feed;
  if (held.place !== place) {
    feed = new SessionFeed({ app, user, session });
    setHeld({ place, feed });
  }
  useEffect(() => {
    feed.start();
    return () => feed.stop();
  }, [feed]);
  return { feed, snapshot: useSyncExternalStore(feed.subscribe, feed.getSnapshot) };
}
