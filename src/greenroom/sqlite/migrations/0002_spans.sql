-- What runs did, for whoever debugs them; see traces/sqlite.py. Oldest first, bounded.
CREATE TABLE spans (
    number INTEGER PRIMARY KEY,
    app_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    event_id TEXT,
    data TEXT NOT NULL
);
CREATE INDEX spans_of_session ON spans (session_id, app_name, user_id);
CREATE INDEX spans_of_event ON spans (event_id) WHERE event_id IS NOT NULL;

CREATE TRIGGER spans_go_with_their_session AFTER DELETE ON sessions BEGIN
    DELETE FROM spans WHERE session_id = old.id AND app_name = old.app_name AND user_id = old.user_id;
END;
