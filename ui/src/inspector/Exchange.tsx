import type { Content, JsonObject, JsonValue } from "greenroom-client";
import type { ReactNode } from "react";
import { Empty } from "../components/Empty";
import { ErrorLine } from "../components/ErrorLine";
import { JsonView } from "../components/JsonView";
import { count } from "./format";
import type { InspectorProps } from "./props";
import { Facts, Parts } from "./Parts";
import { ATTRIBUTE, decoded, isObject, objects, useEventSpan } from "./queries";

/** The request as the model got it, or what a tool was called with. */
export function Request(props: InspectorProps) {
  const { chosen } = props;
  const span = useEventSpan(props.place, chosen.event, props.timeline.lastSeq);
  if (span.isPending) return <p className="soft panel">Loading…</p>;
  if (span.error !== null) return <ErrorLine error={span.error} />;
  const request = decoded(span.attributes, ATTRIBUTE.request);
  if (request !== null) return <ModelRequest request={request} tokens={chosen.event.usageMetadata?.promptTokenCount} />;
  const args = decoded(span.attributes, ATTRIBUTE.toolArgs);
  if (args !== null) {
    return (
      <div className="panel">
        <Section title="Arguments of the tool">
          <JsonView value={args} />
        </Section>
      </div>
    );
  }
  return <NoContent props={props} hasSpan={span.attributes !== null} what="request" />;
}

/** The reply as the model sent it, or what a tool returned. */
export function Reply(props: InspectorProps) {
  const span = useEventSpan(props.place, props.chosen.event, props.timeline.lastSeq);
  if (span.isPending) return <p className="soft panel">Loading…</p>;
  if (span.error !== null) return <ErrorLine error={span.error} />;
  const model = decoded(span.attributes, ATTRIBUTE.response);
  const reply = model ?? decoded(span.attributes, ATTRIBUTE.toolResponse);
  if (reply === null) return <NoContent props={props} hasSpan={span.attributes !== null} what="reply" />;
  return (
    <div className="panel">
      <Section title={model === null ? "Result of the tool" : "The model's reply"}>
        <JsonView value={reply} />
      </Section>
    </div>
  );
}

function NoContent({ props, hasSpan, what }: { props: InspectorProps; hasSpan: boolean; what: string }) {
  const { timeline, chosen, choose } = props;
  const at = timeline.byId.get(chosen.event.id) ?? 0;
  const next = timeline.events.slice(at + 1).find(({ event }) => event.author !== "user");
  if (chosen.event.author === "user") {
    return (
      <Empty title={`A message has no model ${what}`}>
        <p>The requests that it led to are shown at the events after it.</p>
        {next !== undefined && (
          <button type="button" className="button" onClick={() => choose(next.event.id)}>
            Go to the next event
          </button>
        )}
      </Empty>
    );
  }
  return (
    <Empty title={hasSpan ? `The ${what} was not recorded` : "No trace of this event is stored"}>
      <p>
        {hasSpan
          ? "Its content is too long for a trace, or the server was started with --traced-content nowhere."
          : "The event made no model or tool call, or its trace was dropped: the server keeps the newest ones."}
      </p>
    </Empty>
  );
}

function ModelRequest({ request, tokens }: { request: JsonObject; tokens: number | undefined }) {
  const config: JsonObject = isObject(request.config) ? request.config : {};
  const { systemInstruction, tools, ...rest } = config;
  const contents = objects(request.contents) as readonly Content[];
  const declarations = objects(tools).flatMap((tool) => objects(tool.functionDeclarations));
  const others = objects(tools).filter((tool) => tool.functionDeclarations === undefined);
  const leftOut = typeof request.contentsLeftOut === "number" ? request.contentsLeftOut : 0;
  return (
    <div className="panel">
      <Facts
        facts={[
          ["Model", <code key="model">{String(request.model ?? "")}</code>],
          ["Tokens", tokens !== undefined && count(tokens)],
        ]}
      />
      {systemInstruction !== undefined && (
        <Section title="System instruction">
          <pre className="wrapped">{instruction(systemInstruction)}</pre>
        </Section>
      )}
      <Section title={`Contents (${contents.length + leftOut})`}>
        {leftOut > 0 && <p className="soft">The first {leftOut} are too long for a trace and not shown.</p>}
        {contents.map((content, at) => (
          <div className="content" key={at}>
            <div className="label soft">{content.role ?? "user"}</div>
            <Parts parts={content.parts ?? []} />
          </div>
        ))}
      </Section>
      {declarations.length > 0 && (
        <Section title={`Tools (${declarations.length})`}>
          {declarations.map((tool) => (
            <details className="declaration" key={String(tool.name)}>
              <summary>
                <code>{String(tool.name)}</code> <span className="soft">{String(tool.description ?? "")}</span>
              </summary>
              <JsonView value={tool.parametersJsonSchema ?? tool.parameters ?? {}} />
            </details>
          ))}
        </Section>
      )}
      {others.length > 0 && (
        <Section title="Tools of the provider">
          <JsonView value={others} />
        </Section>
      )}
      {Object.keys(rest).length > 0 && (
        <Section title="Configuration">
          <JsonView value={rest} />
        </Section>
      )}
    </div>
  );
}

function instruction(value: JsonValue): string {
  if (typeof value === "string") return value;
  if (!isObject(value)) return JSON.stringify(value, null, 2);
  return objects(value.parts)
    .map((part) => (typeof part.text === "string" ? part.text : JSON.stringify(part)))
    .join("\n");
}

function Section({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section>
      <h3>{title}</h3>
      {children}
    </section>
  );
}
