-- Counts the servers that have acquired the lock of the database; see runs/postgres_store.py.
ALTER TABLE greenroom_schema ADD COLUMN server_epoch bigint NOT NULL DEFAULT 0;
