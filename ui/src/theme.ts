export type Theme = "system" | "light" | "dark";

const KEY = "greenroom.theme";

export function theme(): Theme {
  const stored = localStorage.getItem(KEY);
  return stored === "light" || stored === "dark" ? stored : "system";
}

export function setTheme(wanted: Theme): void {
  if (wanted === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, wanted);
  applyTheme();
}

export function applyTheme(): void {
  const wanted = theme();
  if (wanted === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = wanted;
}
