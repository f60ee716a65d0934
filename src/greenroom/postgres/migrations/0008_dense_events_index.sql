-- Rows are added at the end of their session only: pages that split need no room for later rows.
ALTER INDEX events_pkey SET (fillfactor = 100);
ALTER INDEX events_session_id_key SET (fillfactor = 100);
