-- Ended runs whose events have yet to be added to memory; see runs/memory_writer.py.
CREATE INDEX runs_to_remember ON runs (created_at)
    WHERE status IN ('succeeded unremembered', 'failed unremembered', 'cancelled unremembered');
