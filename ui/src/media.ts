import { useEffect, useState } from "react";
import { theme } from "./theme";

/** Whether a media query matches, kept up to date. */
export function useMedia(query: string): boolean {
  const [matches, setMatches] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const list = matchMedia(query);
    const update = () => setMatches(list.matches);
    list.addEventListener("change", update);
    return () => list.removeEventListener("change", update);
  }, [query]);
  return matches;
}

/** Whether the page is dark, by the settings or else by the system. */
export function useIsDark(): boolean {
  const isSystemDark = useMedia("(prefers-color-scheme: dark)");
  const chosen = theme();
  return chosen === "system" ? isSystemDark : chosen === "dark";
}
