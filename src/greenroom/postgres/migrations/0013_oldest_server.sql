-- The schema version of the oldest servers that stand these tables; see postgres/migrate.py.
ALTER TABLE greenroom_schema ADD COLUMN oldest_server integer NOT NULL DEFAULT 0;
