import { useEffect, useState } from "react";
import { useRequests } from "../requests/useRequests";

const MOST = 99;

/** The number of open requests to people, kept up to date while the page can be seen. */
export default function InboxBadge() {
  const [isVisible, setVisible] = useState(() => !document.hidden);
  useEffect(() => {
    const update = () => setVisible(!document.hidden);
    document.addEventListener("visibilitychange", update);
    return () => document.removeEventListener("visibilitychange", update);
  }, []);
  // Hidden tabs need no stream; over HTTP/1.1 browsers allow six to a server, over all tabs.
  const { page } = useRequests(isVisible ? `/requests?limit=${MOST}` : null);
  const count = page?.requests?.length ?? 0;
  if (count === 0) return null;
  return (
    <span className="rail-badge">
      {count}
      {page?.nextPageToken != null && "+"}
    </span>
  );
}
