// What to do about an app's load error, as a command to copy.

export type Remedy = { readonly reason: string; readonly command: string };

/** The command that installs or sets what an error says is missing; null when the error names nothing such. */
export function remedyOf(error: string): Remedy | null {
  const given = /pip install '?([\w.[\],-]+)'?/.exec(error);
  if (given?.[1] !== undefined) return { reason: "An extra is missing.", command: `pip install '${given[1]}'` };
  const pulled = /greenroom models pull ([\w./-]+)/.exec(error);
  if (pulled?.[1] !== undefined) return { reason: "A model file is missing.", command: `greenroom models pull ${pulled[1]}` };
  const absent = /No module named '?([\w.]+)'?/.exec(error);
  if (absent?.[1] !== undefined) {
    const name = absent[1].split(".")[0] ?? absent[1];
    return { reason: "A package is missing; it may have another name on PyPI than in Python.", command: `pip install ${name.replaceAll("_", "-")}` };
  }
  const variable = /\b([A-Z][A-Z0-9_]*_(?:API_)?KEY)\b/.exec(error);
  if (variable?.[1] !== undefined) return { reason: "A key is missing in the server's environment.", command: `export ${variable[1]}=` };
  return null;
}
