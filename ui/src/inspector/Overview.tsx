import { Link } from "@tanstack/react-router";
import { JsonView } from "../components/JsonView";
import { duration } from "../components/Time";
import { count } from "./format";
import type { InspectorProps } from "./props";
import { Facts, Parts } from "./Parts";
import { useSpans } from "./queries";
import { WakeUps } from "./WakeUps";
import { Webhooks } from "./Webhooks";

/** The event's fields in words, with what it says and what it changes. */
export function Overview({ place, timeline, chosen }: InspectorProps) {
  const { event } = chosen;
  const spans = useSpans(place, timeline.lastSeq);
  const span = spans.data?.find((one) => one.attributes["gcp.vertex.agent.event_id"] === event.id);
  const run = timeline.runs.findLast((one) => one.id === event.invocationId);
  const { usageMetadata: usage, actions } = event;
  const parts = event.content?.parts ?? [];
  const rest = Object.fromEntries(
    Object.entries(actions).filter(([key, value]) => key !== "stateDelta" && key !== "artifactDelta" && !isEmpty(value)),
  );
  return (
    <div className="panel">
      {run !== undefined && <WakeUps runId={run.id} wakeUps={run.wakeUps} />}
      {event.errorCode !== undefined && (
        <div className="error-line">
          <span className="spread">
            {event.errorMessage ?? "The model or the run failed"} <code className="soft">{event.errorCode}</code>
          </span>
        </div>
      )}
      <Facts
        facts={[
          ["Time", new Date(event.timestamp * 1000).toLocaleString()],
          ["Took", span && duration((span.end_time - span.start_time) / 1e9)],
          ["Model", event.modelVersion ?? textOf(span?.attributes["gen_ai.request.model"])],
          [
            "Tokens",
            usage &&
              [
                `${count(usage.totalTokenCount ?? 0)} in all`,
                usage.promptTokenCount !== undefined && `${count(usage.promptTokenCount)} request`,
                usage.candidatesTokenCount !== undefined && `${count(usage.candidatesTokenCount)} reply`,
                usage.thoughtsTokenCount !== undefined && `${count(usage.thoughtsTokenCount)} thoughts`,
              ]
                .filter(Boolean)
                .join(" · "),
          ],
          ["Interrupted", event.interrupted === true && "The reply was cut off"],
          ["Branch", event.branch && <code>{event.branch}</code>],
          ["Node", event.nodeInfo?.path && <code>{event.nodeInfo.path}</code>],
          [
            "Run",
            <span key="run">
              <code>{event.invocationId}</code> {run !== undefined && <span className="soft">{run.status}</span>}
            </span>,
          ],
          ["Event", <code key="event">{event.id}</code>],
          [
            "",
            <Link key="compare" to="/compare" search={{ left: event.invocationId }}>
              Compare this run with another
            </Link>,
          ],
        ]}
      />
      {parts.length > 0 && (
        <section>
          <h3>Content</h3>
          <Parts parts={parts} />
        </section>
      )}
      {event.output !== undefined && (
        <section>
          <h3>Output</h3>
          <JsonView value={event.output} />
        </section>
      )}
      {!isEmpty(actions.stateDelta) && (
        <section>
          <h3>State changes</h3>
          <JsonView value={actions.stateDelta ?? {}} />
        </section>
      )}
      {!isEmpty(actions.artifactDelta) && (
        <section>
          <h3>Saved artifacts</h3>
          <JsonView value={actions.artifactDelta ?? {}} />
        </section>
      )}
      {Object.keys(rest).length > 0 && (
        <section>
          <h3>Actions</h3>
          <JsonView value={rest} />
        </section>
      )}
      {event.customMetadata !== undefined && (
        <section>
          <h3>Metadata</h3>
          <JsonView value={event.customMetadata} />
        </section>
      )}
      {run !== undefined && !run.isPatch && run.attempts > 0 && <Webhooks runId={run.id} status={run.status} />}
    </div>
  );
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

function isEmpty(value: unknown): boolean {
  return value === undefined || value === null || (typeof value === "object" && Object.keys(value).length === 0);
}
