-- The request of a run apart from its record, which is written at each change of its status.
ALTER TABLE runs ADD COLUMN request TEXT;
UPDATE runs SET request = json_extract(data, '$.request') WHERE status IN ('queued', 'running');
