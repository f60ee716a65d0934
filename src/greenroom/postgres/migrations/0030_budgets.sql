-- Budgets that administrators have set, and the warnings of this and earlier windows; see usage/store.py.
-- owner: a user or key, or empty for each. data: a Budget as JSON.
CREATE TABLE budgets (
    app_name text COLLATE "C" NOT NULL,
    per text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    budget_window text COLLATE "C" NOT NULL,
    data text COLLATE "C" NOT NULL,
    PRIMARY KEY (app_name, per, owner, budget_window)
);
-- owner: the ids of the account as a JSON array. day: empty for all time.
CREATE TABLE budget_warnings (
    app_name text COLLATE "C" NOT NULL,
    per text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    day text COLLATE "C" NOT NULL,
    warned_at double precision NOT NULL,
    PRIMARY KEY (app_name, per, owner, day)
);
