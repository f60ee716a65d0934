-- A secret of each replica, with which it proves to the others that a request comes from it; see server/forwarding.py.
ALTER TABLE replicas ADD COLUMN token text;
