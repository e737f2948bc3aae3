-- Size of the log at the last checkpoint that a retired key signed: it validates none of a larger log. The servers' key
-- files have it, too, and theirs is the one that counts.
alter table log_note_key add column last_size bigint;
