import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { type ApiKeyInfo, type CreatedApiKey, GreenroomError, type Role, type ServiceAccount } from "greenroom-client";
import { Ban, Check, Clock, Plus } from "lucide-react";
import { type ReactNode, useState } from "react";
import { client } from "../api";
import { Empty } from "../components/Empty";
import { ErrorLine } from "../components/ErrorLine";
import { Moment } from "../components/Time";
import { reload } from "../reload";
import { AdminPage } from "./AdminPage";
import { AdminForm, ChoiceField, TextField, words, wordsOrAll } from "./Form";

const PAGE = 100;
const SECONDS_PER_DAY = 86_400;

/** API keys, service accounts and roles. */
export function KeysPage() {
  const keys = useInfiniteQuery({
    queryKey: ["admin", "keys"],
    queryFn: ({ pageParam }) => client.listKeys({ limit: PAGE, ...pageParam }),
    initialPageParam: {},
    getNextPageParam: ({ nextPageToken }) => (nextPageToken == null ? undefined : { page_token: nextPageToken }),
    retry: false,
  });
  const isOff = keys.error instanceof GreenroomError && keys.error.status === 501;
  if (isOff) {
    return (
      <AdminPage title="Keys">
        <Empty title="This server has no API keys">
          <p>
            <code>greenroom keys create DIR --user root --scopes admin</code> creates the first one. When the server is started again, it asks
            every caller for a key, and more are created here.
          </p>
        </Empty>
      </AdminPage>
    );
  }
  const found = keys.data?.pages.flatMap((page) => page.keys ?? []);
  return (
    <AdminPage title="Keys">
      {keys.isError && <ErrorLine error={keys.error} />}
      {found === undefined && !keys.isError && <p className="soft">Loading…</p>}
      {found !== undefined && (
        <>
          <Keys keys={found}>
            {keys.hasNextPage && (
              <button type="button" className="button" disabled={keys.isFetching} onClick={() => void keys.fetchNextPage()}>
                Show older keys
              </button>
            )}
          </Keys>
          <Accounts />
          <Roles />
        </>
      )}
    </AdminPage>
  );
}

type SectionProps = { readonly title: string; readonly action: string; readonly form: (close: () => void) => ReactNode; readonly children: ReactNode };

function Section({ title, action, form, children }: SectionProps) {
  const [isOpen, setOpen] = useState(false);
  return (
    <section className="admin-section" aria-label={title}>
      <div className="row">
        <h2 className="spread">{title}</h2>
        {!isOpen && (
          <button type="button" className="button" onClick={() => setOpen(true)}>
            <Plus size={14} aria-hidden="true" />
            {action}
          </button>
        )}
      </div>
      {isOpen && form(() => setOpen(false))}
      {children}
    </section>
  );
}

function Keys({ keys, children }: { keys: readonly ApiKeyInfo[]; children: ReactNode }) {
  const [created, setCreated] = useState<CreatedApiKey | null>(null);
  const [showsAll, setShowsAll] = useState(false);
  const valid = keys.filter((key) => stateOf(key)[1] === "ok");
  const shown = showsAll ? keys : valid;
  return (
    <Section title="API keys" action="New key" form={(close) => <NewKey close={close} created={setCreated} />}>
      {created !== null && (
        <div className="admin-secret" role="status">
          <p>
            The key of {created.userId}. Copy it now: it can't be shown again.
          </p>
          <code className="wrapped">{created.key}</code>
          <button type="button" className="button small" onClick={() => setCreated(null)}>
            Done
          </button>
        </div>
      )}
      <ul className="admin-list" aria-label="Keys">
        {shown.map((key) => (
          <KeyRow key={key.id} apiKey={key} />
        ))}
      </ul>
      <div className="row">
        {keys.length > valid.length && (
          <label className="soft">
            <input type="checkbox" checked={showsAll} onChange={(event) => setShowsAll(event.target.checked)} /> Show revoked and expired keys
          </label>
        )}
        {children}
      </div>
    </Section>
  );
}

function stateOf(key: ApiKeyInfo): readonly ["Valid" | "Revoked" | "Expired", "ok" | "idle"] {
  if (key.revokedAt != null) return ["Revoked", "idle"];
  if (key.expiresAt != null && key.expiresAt * 1000 <= Date.now()) return ["Expired", "idle"];
  return ["Valid", "ok"];
}

function KeyRow({ apiKey }: { apiKey: ApiKeyInfo }) {
  const queries = useQueryClient();
  const [name, tone] = stateOf(apiKey);
  const revoke = useMutation({
    mutationFn: (force: boolean) => client.revokeKey(apiKey.id, force ? { force } : {}),
    onSuccess: () => reload(queries, ["admin"]),
  });
  const Icon = name === "Valid" ? Check : name === "Expired" ? Clock : Ban;
  return (
    <li>
      <div className="admin-row">
        <span className={`status ${tone}`}>
          <Icon size={16} aria-hidden="true" />
          {name}
        </span>
        <span className="admin-main">
          <strong>{apiKey.userId}</strong> {apiKey.name} <code className="soft">{apiKey.id}</code>
          <span className="admin-facts soft">
            {apiKey.serviceAccount == null ? <Permissions {...apiKey} /> : <>as its service account</>}
            {apiKey.expiresAt != null && (
              <>
                {" "}
                · until <Moment at={apiKey.expiresAt} />
              </>
            )}{" "}
            · {apiKey.lastUsedAt == null ? "never used" : <>last used <Moment at={apiKey.lastUsedAt} /></>}
          </span>
        </span>
        {name === "Valid" && (
          <button
            type="button"
            className="button small danger"
            disabled={revoke.isPending}
            onClick={() => confirm(`Revoke the key ${apiKey.id} of ${apiKey.userId}?`) && revoke.mutate(false)}
          >
            Revoke
          </button>
        )}
      </div>
      {revoke.isError && (
        <ErrorLine error={revoke.error}>
          {revoke.error instanceof GreenroomError && revoke.error.code === "AccessConflict" && (
            <button type="button" className="button small danger" onClick={() => revoke.mutate(true)}>
              Revoke all the same
            </button>
          )}
        </ErrorLine>
      )}
    </li>
  );
}

type PermissionsProps = { readonly scopes?: readonly string[]; readonly roles?: readonly string[]; readonly apps?: readonly string[] | null };

function Permissions({ scopes = [], roles = [], apps }: PermissionsProps) {
  const allowed = [...roles.map((role) => `role ${role}`), ...scopes];
  return (
    <>
      {allowed.length === 0 ? "no scopes" : allowed.join(", ")} · {apps == null ? "all apps" : apps.length === 0 ? "no app" : `apps ${apps.join(", ")}`}
    </>
  );
}

function NewKey({ close, created }: { close: () => void; created: (key: CreatedApiKey) => void }) {
  const queries = useQueryClient();
  const [of, setOf] = useState<"user" | "account">("user");
  const [owner, setOwner] = useState("");
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState("run read");
  const [roles, setRoles] = useState("");
  const [apps, setApps] = useState("");
  const [days, setDays] = useState("");

  async function submit() {
    const expiresAt = days === "" ? undefined : Date.now() / 1000 + Number(days) * SECONDS_PER_DAY;
    const permissions = { scopes: words(scopes), roles: words(roles), apps: wordsOrAll(apps) };
    const owned = of === "user" ? { userId: owner, ...permissions } : { serviceAccount: owner };
    created(await client.createKey({ name, expiresAt, ...owned }));
    await reload(queries, ["admin", "keys"]);
    close();
  }

  return (
    <AdminForm label="New key" action="Create" submit={submit} cancel={close}>
      <ChoiceField label="For" value={of} choices={{ user: "A user", account: "A service account" }} set={setOf} />
      <TextField label={of === "user" ? "User" : "Service account"} value={owner} set={setOwner} isRequired />
      <TextField label="Description" value={name} set={setName} />
      <TextField label="Expires in days" type="number" value={days} set={setDays} hint="Empty: never" />
      {of === "user" && (
        <>
          <TextField label="Scopes" value={scopes} set={setScopes} hint="run, read, manage, debug, audit, app:NAME, approve:NAME, admin" />
          <TextField label="Roles" value={roles} set={setRoles} hint="Names, separated by spaces" />
          <TextField label="Apps" value={apps} set={setApps} hint="Empty: all" />
        </>
      )}
    </AdminForm>
  );
}

function Accounts() {
  const accounts = useQuery({ queryKey: ["admin", "accounts"], queryFn: () => client.listServiceAccounts(), retry: false });
  const found = accounts.data?.serviceAccounts ?? [];
  return (
    <Section title="Service accounts" action="New service account" form={(close) => <AccountForm close={close} />}>
      {accounts.isError && <ErrorLine error={accounts.error} />}
      {found.length === 0 ? (
        <p className="soft">None yet. A service account is an identity that is no user, with keys of its own that are disabled at once.</p>
      ) : (
        <ul className="admin-list" aria-label="Accounts">
          {found.map((account) => (
            <AccountRow key={account.name} account={account} />
          ))}
        </ul>
      )}
    </Section>
  );
}

function AccountRow({ account }: { account: ServiceAccount }) {
  const queries = useQueryClient();
  const [isEdited, setEdited] = useState(false);
  const act = useMutation({ mutationFn: (action: () => Promise<unknown>) => action(), onSuccess: () => reload(queries, ["admin"]) });
  const { name, createdAt: _, ...rest } = account;
  const isDisabled = account.isDisabled === true;
  return (
    <li>
      <div className="admin-row">
        <span className={`status ${isDisabled ? "idle" : "ok"}`}>
          {isDisabled ? <Ban size={16} aria-hidden="true" /> : <Check size={16} aria-hidden="true" />}
          {isDisabled ? "Disabled" : "Enabled"}
        </span>
        <span className="admin-main">
          <strong>{name}</strong> {account.description}
          <span className="admin-facts soft">
            <Permissions {...account} />
          </span>
        </span>
        <span className="row">
          <button type="button" className="button small" disabled={act.isPending} onClick={() => setEdited(!isEdited)}>
            Edit
          </button>
          <button
            type="button"
            className="button small"
            disabled={act.isPending}
            onClick={() => act.mutate(() => client.putServiceAccount(name, { ...rest, isDisabled: !isDisabled }))}
          >
            {isDisabled ? "Enable" : "Disable"}
          </button>
          <button
            type="button"
            className="button small danger"
            disabled={act.isPending}
            onClick={() => confirm(`Delete the service account ${name} and revoke its keys?`) && act.mutate(() => client.deleteServiceAccount(name))}
          >
            Delete
          </button>
        </span>
      </div>
      {act.isError && <ErrorLine error={act.error} />}
      {isEdited && <AccountForm account={account} close={() => setEdited(false)} />}
    </li>
  );
}

function AccountForm({ account, close }: { account?: ServiceAccount; close: () => void }) {
  const queries = useQueryClient();
  const [name, setName] = useState(account?.name ?? "");
  const [description, setDescription] = useState(account?.description ?? "");
  const [scopes, setScopes] = useState(account === undefined ? "run read" : (account.scopes ?? []).join(" "));
  const [roles, setRoles] = useState((account?.roles ?? []).join(" "));
  const [apps, setApps] = useState((account?.apps ?? []).join(" "));

  async function submit() {
    const permissions = { scopes: words(scopes), roles: words(roles), apps: wordsOrAll(apps) };
    await client.putServiceAccount(name, { description, ...permissions, isDisabled: account?.isDisabled ?? false });
    await reload(queries, ["admin"]);
    close();
  }

  return (
    <AdminForm label={account === undefined ? "New service account" : `Edit ${account.name}`} action={account === undefined ? "Create" : "Save"} submit={submit} cancel={close}>
      <TextField label="Name" value={name} set={setName} isRequired isDisabled={account !== undefined} />
      <TextField label="Description" value={description} set={setDescription} />
      <TextField label="Scopes" value={scopes} set={setScopes} />
      <TextField label="Roles" value={roles} set={setRoles} hint="Names, separated by spaces" />
      <TextField label="Apps" value={apps} set={setApps} hint="Empty: all" />
    </AdminForm>
  );
}

function Roles() {
  const roles = useQuery({ queryKey: ["admin", "roles"], queryFn: () => client.listRoles(), retry: false });
  return (
    <Section title="Roles" action="New role" form={(close) => <RoleForm close={close} />}>
      {roles.isError && <ErrorLine error={roles.error} />}
      <ul className="admin-list" aria-label="Roles">
        {roles.data?.roles?.map((role) => (
          <RoleRow key={role.name} role={role} />
        ))}
      </ul>
    </Section>
  );
}

function RoleRow({ role }: { role: Role }) {
  const queries = useQueryClient();
  const [isEdited, setEdited] = useState(false);
  const remove = useMutation({ mutationFn: () => client.deleteRole(role.name), onSuccess: () => reload(queries, ["admin"]) });
  return (
    <li>
      <div className="admin-row">
        <span className="soft">{role.isBuiltIn ? "Built in" : "Custom"}</span>
        <span className="admin-main">
          <strong>{role.name}</strong> {role.description}
          <span className="admin-facts soft">{role.scopes.length === 0 ? "no scopes" : role.scopes.join(", ")}</span>
        </span>
        {!role.isBuiltIn && (
          <span className="row">
            <button type="button" className="button small" onClick={() => setEdited(!isEdited)}>
              Edit
            </button>
            <button
              type="button"
              className="button small danger"
              disabled={remove.isPending}
              onClick={() => confirm(`Delete the role ${role.name}?`) && remove.mutate()}
            >
              Delete
            </button>
          </span>
        )}
      </div>
      {remove.isError && <ErrorLine error={remove.error} />}
      {isEdited && <RoleForm role={role} close={() => setEdited(false)} />}
    </li>
  );
}

function RoleForm({ role, close }: { role?: Role; close: () => void }) {
  const queries = useQueryClient();
  const [name, setName] = useState(role?.name ?? "");
  const [description, setDescription] = useState(role?.description ?? "");
  const [scopes, setScopes] = useState((role?.scopes ?? []).join(" "));

  async function submit() {
    await client.putRole(name, { description, scopes: words(scopes) });
    await reload(queries, ["admin"]);
    close();
  }

  return (
    <AdminForm label={role === undefined ? "New role" : `Edit ${role.name}`} action={role === undefined ? "Create" : "Save"} submit={submit} cancel={close}>
      <TextField label="Name" value={name} set={setName} isRequired isDisabled={role !== undefined} />
      <TextField label="Description" value={description} set={setDescription} />
      <TextField label="Scopes" value={scopes} set={setScopes} hint="run, read, manage, debug, audit, app:NAME, approve:NAME, admin" />
    </AdminForm>
  );
}
