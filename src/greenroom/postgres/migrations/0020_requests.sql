-- Requests to people, and those whom open ones concern; see records/inbox.py.
CREATE TABLE requests (
    id text COLLATE "C" PRIMARY KEY,
    run_id text COLLATE "C" NOT NULL,
    app_name text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    tool text,
    created_at double precision NOT NULL,
    status text NOT NULL,
    data text NOT NULL
);
CREATE INDEX open_requests ON requests (created_at, id) WHERE status = 'open';
CREATE INDEX requests_by_run ON requests (run_id);

CREATE TABLE request_approvers (
    approver text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    may_answer integer NOT NULL,
    PRIMARY KEY (approver, request_id)
);
CREATE INDEX approvers_by_request ON request_approvers (request_id);
