-- Budgets that administrators have set, and the warnings of this and earlier windows; see usage/store.py.
-- owner: a user or key, or empty for each. data: a Budget as JSON.
CREATE TABLE budgets (
    app_name TEXT NOT NULL,
    per TEXT NOT NULL,
    owner TEXT NOT NULL,
    budget_window TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (app_name, per, owner, budget_window)
);
-- owner: the ids of the account as a JSON array. day: empty for all time.
CREATE TABLE budget_warnings (
    app_name TEXT NOT NULL,
    per TEXT NOT NULL,
    owner TEXT NOT NULL,
    day TEXT NOT NULL,
    warned_at REAL NOT NULL,
    PRIMARY KEY (app_name, per, owner, day)
);
