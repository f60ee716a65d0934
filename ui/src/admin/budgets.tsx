import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import type { BudgetInEffect, BudgetUse } from "greenroom-client";
import { Plus, TriangleAlert } from "lucide-react";
import { useState } from "react";
import { client } from "../api";
import { Empty } from "../components/Empty";
import { ErrorLine } from "../components/ErrorLine";
import { Moment } from "../components/Time";
import type { Search } from "../pages/filters";
import { reload } from "../reload";
import { AdminPage } from "./AdminPage";
import { AppChoice, useChosenApp } from "./AppChoice";
import { AdminForm, ChoiceField, TextField } from "./Form";

const REFRESH_MS = 10_000;
const NUMBER = new Intl.NumberFormat();
const DEFAULT_WARN_PERCENT = "80";

/** The budgets of an app that are in effect, and their use. */
export function BudgetsPage() {
  const { app: wanted } = useSearch({ strict: false }) as Search;
  const navigate = useNavigate();
  const app = useChosenApp(wanted);
  const [isNew, setNew] = useState(false);
  const budgets = useQuery({
    queryKey: ["admin", "budgets", app],
    queryFn: () => client.listBudgets(app ?? ""),
    enabled: app !== undefined,
    refetchInterval: REFRESH_MS,
    retry: false,
  });
  const found = budgets.data?.budgets;
  const actions = app !== undefined && (
    <>
      <AppChoice app={app} set={(name) => void navigate({ to: "/admin/budgets", search: { app: name }, replace: true })} />
      {!isNew && (
        <button type="button" className="button" onClick={() => setNew(true)}>
          <Plus size={14} aria-hidden="true" />
          New budget
        </button>
      )}
    </>
  );
  return (
    <AdminPage title="Budgets" actions={actions}>
      {budgets.isError && <ErrorLine error={budgets.error} />}
      {app !== undefined && isNew && <BudgetForm app={app} currency={budgets.data?.currency ?? "USD"} close={() => setNew(false)} />}
      {found === undefined && !budgets.isError && <p className="soft">Loading…</p>}
      {found?.length === 0 && !isNew && (
        <Empty title="No budgets">
          <p>
            A budget limits the tokens or the cost of the models: of each user or one user, of the app, or of API keys. Runs above it end with{" "}
            <code>BUDGET_EXCEEDED</code>; at a share such as 80 % the server warns.
          </p>
        </Empty>
      )}
      {app !== undefined && found !== undefined && found.length > 0 && (
        <ul className="admin-list" aria-label="Budgets">
          {found.map((budget) => (
            <BudgetRow key={`${budget.per} ${budget.userId ?? budget.keyId ?? ""} ${budget.window} ${budget.source}`} app={app} budget={budget} currency={budgets.data?.currency ?? "USD"} />
          ))}
        </ul>
      )}
    </AdminPage>
  );
}

function ownerOf({ per, userId, keyId }: BudgetInEffect): string {
  if (per === "run") return "Each run";
  if (per === "app") return "The app";
  if (per === "user") return userId == null ? "Each user" : `User ${userId}`;
  return keyId == null ? "Each API key" : `API key ${keyId}`;
}

function limitsOf({ tokens, money }: BudgetInEffect, currency: string): string {
  const limits = [tokens == null ? "" : `${NUMBER.format(tokens)} tokens`, money == null ? "" : `${money} ${currency}`];
  return limits.filter((limit) => limit !== "").join(" and ");
}

type RowProps = { readonly app: string; readonly budget: BudgetInEffect; readonly currency: string };

function BudgetRow({ app, budget, currency }: RowProps) {
  const queries = useQueryClient();
  const [isEdited, setEdited] = useState(false);
  const { per, userId, keyId, window } = budget;
  const remove = useMutation({
    mutationFn: () => client.deleteBudget(app, { per: per as "user" | "app" | "key", userId, keyId, window }),
    onSuccess: () => reload(queries, ["admin", "budgets", app]),
  });
  return (
    <li>
      <div className="admin-row">
        <span className="soft">{budget.source === "app" ? "In the code" : "Stored"}</span>
        <span className="admin-main">
          <strong>{ownerOf(budget)}</strong> {limitsOf(budget, currency)} {per === "run" ? "" : window === "day" ? "a day (UTC)" : "for all time"}
          {budget.warnAt != null && <span className="soft"> · warns at {`${Math.round(budget.warnAt * 100)}\u00a0%`}</span>}
        </span>
        {per !== "run" && (
          <span className="row">
            <button type="button" className="button small" onClick={() => setEdited(!isEdited)}>
              Change
            </button>
            {budget.source === "stored" && (
              <button
                type="button"
                className="button small danger"
                disabled={remove.isPending}
                onClick={() => confirm(`Delete the budget of: ${ownerOf(budget)}?`) && remove.mutate()}
              >
                Delete
              </button>
            )}
          </span>
        )}
      </div>
      {remove.isError && <ErrorLine error={remove.error} />}
      {isEdited && <BudgetForm app={app} budget={budget} currency={currency} close={() => setEdited(false)} />}
      {budget.uses !== undefined && budget.uses.length > 0 && (
        <ul className="budget-uses" aria-label={`Use of the budget: ${ownerOf(budget)}`}>
          {budget.uses.map((use) => (
            <Use key={use.userId ?? use.keyId ?? ""} use={use} budget={budget} currency={currency} />
          ))}
        </ul>
      )}
    </li>
  );
}

function Use({ use, budget, currency }: { use: BudgetUse; budget: BudgetInEffect; currency: string }) {
  const share = use.share ?? 0;
  const tone = share >= 1 ? "bad" : use.warnedAt != null ? "wait" : "ok";
  const name = use.userId ?? use.keyId ?? "All";
  return (
    <li className="budget-use">
      <span className="cut">{name}</span>
      <meter className={`budget-meter ${tone}`} aria-label={`Spent by ${name}`} min={0} max={1} value={Math.min(share, 1)} />
      <span className="budget-amount">
        {`${Math.round(share * 100)}\u00a0%`} · {budget.tokens == null ? `${use.money} ${currency}` : `${NUMBER.format(use.tokens ?? 0)} tokens`}
      </span>
      {use.warnedAt != null && (
        <span className={`status ${tone}`}>
          <TriangleAlert size={16} aria-hidden="true" />
          <span>
            Warned <Moment at={use.warnedAt} />
          </span>
        </span>
      )}
    </li>
  );
}

const PER = { user: "Users", app: "The app", key: "API keys" } as const;
const WINDOWS = { day: "A day (UTC)", ever: "All time" } as const;

type FormProps = { readonly app: string; readonly budget?: BudgetInEffect; readonly currency: string; readonly close: () => void };

function BudgetForm({ app, budget, currency, close }: FormProps) {
  const queries = useQueryClient();
  const [per, setPer] = useState<keyof typeof PER>(budget === undefined || budget.per === "run" ? "user" : budget.per);
  const [owner, setOwner] = useState(budget?.userId ?? budget?.keyId ?? "");
  const [window, setWindow] = useState<keyof typeof WINDOWS>(budget?.window ?? "day");
  const [tokens, setTokens] = useState(budget?.tokens == null ? "" : String(budget.tokens));
  const [money, setMoney] = useState(budget?.money == null ? "" : String(budget.money));
  const [warn, setWarn] = useState(budget === undefined ? DEFAULT_WARN_PERCENT : budget.warnAt == null ? "" : String(Math.round(budget.warnAt * 100)));

  async function submit() {
    await client.putBudget(app, {
      per,
      ...(owner !== "" && per === "user" ? { userId: owner } : {}),
      ...(owner !== "" && per === "key" ? { keyId: owner } : {}),
      window,
      tokens: tokens === "" ? undefined : Number(tokens),
      money: money === "" ? undefined : Number(money),
      warnAt: warn === "" ? null : Number(warn) / 100,
    });
    await reload(queries, ["admin", "budgets", app]);
    close();
  }

  return (
    <AdminForm label={budget === undefined ? "New budget" : `Change the budget: ${ownerOf(budget)}`} action="Save" submit={submit} cancel={close}>
      {budget === undefined && (
        <>
          <ChoiceField label="Of" value={per} choices={PER} set={setPer} />
          {per !== "app" && <TextField label={per === "user" ? "User" : "Id of the key"} value={owner} set={setOwner} hint="Empty: each" />}
          <ChoiceField label="In" value={window} choices={WINDOWS} set={setWindow} />
        </>
      )}
      <TextField label="Tokens" type="number" value={tokens} set={setTokens} hint="Empty: no limit" />
      <TextField label={`Cost in ${currency}`} type="number" value={money} set={setMoney} hint="Empty: no limit" />
      <TextField label="Warn at percent" type="number" value={warn} set={setWarn} hint="Empty: no warning" />
    </AdminForm>
  );
}
