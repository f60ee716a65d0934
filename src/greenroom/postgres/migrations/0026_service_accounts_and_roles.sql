-- Service accounts and roles, beside the API keys; see server/access/api_keys.py.
ALTER TABLE api_keys ADD COLUMN roles TEXT[] NOT NULL DEFAULT '{}';
ALTER TABLE api_keys ADD COLUMN service_account TEXT;

CREATE TABLE service_accounts (name TEXT PRIMARY KEY, data TEXT NOT NULL);
CREATE TABLE roles (name TEXT PRIMARY KEY, data TEXT NOT NULL);

-- At most one row, which changes of keys, accounts and roles lock and count.
CREATE TABLE access_revision (id SMALLINT PRIMARY KEY, number BIGINT NOT NULL);
