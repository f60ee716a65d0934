import { useQuery } from "@tanstack/react-query";
import { listApps } from "../api";

/** The chosen app; by default the first one. */
export function useChosenApp(wanted: string | undefined): string | undefined {
  const apps = useQuery({ queryKey: ["apps"], queryFn: listApps });
  return wanted ?? apps.data?.find((one) => one.error == null)?.name;
}

export function AppChoice({ app, set }: { app: string; set: (app: string) => void }) {
  const apps = useQuery({ queryKey: ["apps"], queryFn: listApps });
  return (
    <select className="select" aria-label="App of the page" value={app} onChange={(event) => set(event.target.value)}>
      {apps.data?.map(({ name }) => (
        <option key={name}>{name}</option>
      ))}
    </select>
  );
}
