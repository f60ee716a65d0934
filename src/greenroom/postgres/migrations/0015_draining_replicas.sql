-- True from the stop signal of a server until its row is deleted: it takes no shards, and gives its own to the others.
ALTER TABLE replicas ADD COLUMN draining boolean NOT NULL DEFAULT false;
