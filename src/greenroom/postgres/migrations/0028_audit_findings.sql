-- Findings of servers that the audit trail was changed: none, if all is well.
CREATE INDEX audit_entries_broken ON audit_entries (time, chain, sequence) WHERE action = 'trail.broken';
