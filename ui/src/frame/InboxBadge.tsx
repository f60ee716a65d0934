import { useRequests } from "../requests/requests";

const MOST = 99;

/** The number of open requests to people, kept up to date. */
export default function InboxBadge() {
  const { data: page } = useRequests(`/requests?limit=${MOST}`);
  const count = page?.requests?.length ?? 0;
  if (count === 0) return null;
  return (
    <span className="rail-badge">
      {count}
      {page?.nextPageToken != null && "+"}
    </span>
  );
}
