import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { client } from "../api";
import { ErrorLine } from "../components/ErrorLine";
import { AdminPage } from "./AdminPage";

/** A text whose words in backticks are code. */
function withCode(text: string): ReactNode[] {
  // The parts at odd places are between backticks. They have no other identity than their places.
  return text.split("`").map((part, place) => (place % 2 === 1 ? <code key={`${place} ${part}`}>{part}</code> : part));
}

/** The settings of the server in effect, read only. */
export function ServerSettingsPage() {
  const [showsAll, setShowsAll] = useState(false);
  const settings = useQuery({ queryKey: ["admin", "settings"], queryFn: () => client.listSettings(), retry: false });
  const found = settings.data?.settings;
  const shown = showsAll ? found : found?.filter((setting) => !setting.isDefault);
  return (
    <AdminPage title="Server settings">
      <p className="soft">
        Read only: flags, variables and <code>greenroom.toml</code> set them when the server starts. Passwords and keys are masked.
      </p>
      {settings.isError && <ErrorLine error={settings.error} />}
      {found === undefined && !settings.isError && <p className="soft">Loading…</p>}
      {found !== undefined && (
        <label className="soft">
          <input type="checkbox" checked={showsAll} onChange={(event) => setShowsAll(event.target.checked)} /> Show settings with their default values
        </label>
      )}
      {shown?.length === 0 && <p>All settings have their default values.</p>}
      <ul className="admin-list" aria-label="Settings">
        {shown?.map(({ key, value, origin, description }) => (
          <li key={key} className="admin-setting">
            <div>
              <strong className="mono">{key}</strong> <code className="wrapped">{value}</code>
            </div>
            <div className="soft">
              {origin} · {withCode(description)}
            </div>
          </li>
        ))}
      </ul>
    </AdminPage>
  );
}
