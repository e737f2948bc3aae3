-- Columns that find unrepaired failures and drift. They are null until the new version of the projection has rebuilt the
-- rows, and a server of the earlier version writes none.
alter table projection_runs add column kind text, add column drift boolean;
create index projection_runs_drift on projection_runs (key) where drift;
