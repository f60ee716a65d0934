import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import type { Run, RunWebhook, WebhookDelivery } from "greenroom-client";
import { CircleCheck, Clock, RotateCw, Send, TriangleAlert } from "lucide-react";
import { client } from "../api";
import { ErrorLine } from "../components/ErrorLine";
import { Time, duration } from "../components/Time";
import { reload } from "../reload";

const PENDING_MS = 2_000;

const LOOKS = {
  pending: { icon: Clock, tone: "wait", name: "Pending" },
  delivered: { icon: CircleCheck, tone: "ok", name: "Delivered" },
  failed: { icon: TriangleAlert, tone: "bad", name: "Failed" },
} as const;

/** The webhooks of a run with their deliveries; nothing for a run without. status: with a new one they are read again. */
export function Webhooks({ runId, status }: { readonly runId: string; readonly status: Run["status"] }) {
  const webhooks = useQuery({
    queryKey: ["webhooks", runId, status],
    queryFn: () => client.listWebhooks(runId),
    placeholderData: (previous) => previous,
    retry: false,
  });
  if (webhooks.data === undefined || webhooks.data.length === 0) return null;
  return (
    <section aria-label="Webhooks">
      <h3>Webhooks</h3>
      <ul className="webhooks">
        {webhooks.data.map((webhook) => (
          <Webhook key={webhook.id} runId={runId} webhook={webhook} status={status} />
        ))}
      </ul>
    </section>
  );
}

type WebhookProps = { readonly runId: string; readonly webhook: RunWebhook; readonly status: Run["status"] };

function Webhook({ runId, webhook, status }: WebhookProps) {
  const queries = useQueryClient();
  const id = webhook.id ?? "";
  const key = ["deliveries", runId, id];
  const deliveries = useQuery({
    queryKey: [...key, status],
    queryFn: () => client.listDeliveries(runId, id, { limit: 20 }),
    placeholderData: (previous) => previous,
    refetchInterval: ({ state }) => (state.data?.some((one) => one.status === "pending") ? PENDING_MS : false),
  });
  const test = useMutation({
    mutationFn: () => client.testWebhook(runId, id),
    onSettled: () => reload(queries, key),
  });
  return (
    <li>
      <div className="row">
        <code className="spread webhook-url">{webhook.url}</code>
        <button type="button" className="button small" disabled={test.isPending} onClick={() => test.mutate()}>
          <Send size={14} aria-hidden="true" />
          Test
        </button>
      </div>
      <p className="soft">
        {(webhook.states ?? []).join(", ")}
        {webhook.isOfApp === true && " · of the app"}
      </p>
      {test.isError && <ErrorLine error={test.error} />}
      {deliveries.isError && <ErrorLine error={deliveries.error} />}
      {deliveries.data?.length === 0 && <p className="soft">Nothing was sent yet.</p>}
      <ul className="deliveries">
        {deliveries.data?.map((delivery) => (
          <Delivery key={delivery.id} runId={runId} webhookId={id} delivery={delivery} reloadAll={() => reload(queries, key)} />
        ))}
      </ul>
    </li>
  );
}

type DeliveryProps = {
  readonly runId: string;
  readonly webhookId: string;
  readonly delivery: WebhookDelivery;
  readonly reloadAll: () => void;
};

function Delivery({ runId, webhookId, delivery, reloadAll }: DeliveryProps) {
  const redeliver = useMutation({
    mutationFn: () => client.redeliver(runId, webhookId, delivery.id),
    onSettled: reloadAll,
  });
  const { icon: Icon, tone, name } = LOOKS[delivery.status];
  const attempts = delivery.attempts ?? [];
  const last = attempts.at(-1);
  return (
    <li>
      <div className="row">
        <span className={`status ${tone}`}>
          <Icon size={14} aria-hidden="true" />
          {name}
        </span>
        <code className="spread">{delivery.type}</code>
        <span className="soft">
          <Time at={last?.at ?? delivery.createdAt} />
        </span>
        <button
          type="button"
          className="button quiet small"
          disabled={redeliver.isPending}
          onClick={() => redeliver.mutate()}
          title="Send it once more, with the same id"
        >
          <RotateCw size={14} aria-hidden="true" />
          Redeliver
        </button>
      </div>
      {last !== undefined && (
        <p className="soft">
          {last.statusCode ?? last.error ?? "no response"} after {duration(last.seconds)}
          {attempts.length > 1 && ` · try ${attempts.length}`}
          {delivery.nextTryAt != null && (
            <>
              {" · next try "}
              <Time at={delivery.nextTryAt} />
            </>
          )}
        </p>
      )}
      {redeliver.isError && <ErrorLine error={redeliver.error} />}
    </li>
  );
}
