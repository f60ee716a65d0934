import type { AppInfo } from "greenroom-client";
import { Empty } from "../components/Empty";
import { ErrorLine } from "../components/ErrorLine";

const AGENT = `# agents/hello/agent.py
from greenroom import LlmAgent


def roll(sides: int) -> int:
    """Rolls a die."""
    import random

    return random.randint(1, sides)


root_agent = LlmAgent(name="hello", instruction="Answer briefly. Roll dice with your tool.", tools=[roll])
`;

export function NoApps({ apps }: { apps: readonly AppInfo[] }) {
  return (
    <Empty title={apps.length === 0 ? "No apps yet" : "No app can be loaded"}>
      {apps.map((app) => (
        <ErrorLine key={app.name} error={`${app.name}: ${app.error ?? ""}`} />
      ))}
      <p>Save this as a first agent in the folder that is served; it appears here by itself.</p>
      <pre className="code">{AGENT}</pre>
      <div>
        <button type="button" className="button" onClick={() => void navigator.clipboard.writeText(AGENT)}>
          Copy
        </button>
      </div>
    </Empty>
  );
}
