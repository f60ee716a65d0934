-- Requests to people, and those whom open ones concern; see records/inbox.py.
CREATE TABLE requests (
    id TEXT PRIMARY KEY,
    run_id TEXT NOT NULL,
    app_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    tool TEXT,
    created_at REAL NOT NULL,
    status TEXT NOT NULL,
    data TEXT NOT NULL
);
CREATE INDEX open_requests ON requests (created_at, id) WHERE status = 'open';
CREATE INDEX requests_by_run ON requests (run_id);

CREATE TABLE request_approvers (
    approver TEXT NOT NULL,
    request_id TEXT NOT NULL,
    may_answer INTEGER NOT NULL,
    PRIMARY KEY (approver, request_id)
) WITHOUT ROWID;
CREATE INDEX approvers_by_request ON request_approvers (request_id);
