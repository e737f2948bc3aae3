-- Columns for filters of installs. They are null until the new version of the projection has rebuilt the rows, and a
-- server of the earlier version writes none.
alter table projection_installs add column state text, add column version bigint;
create index projection_installs_state on projection_installs (state, key);
alter table projection_runners add column state text;
create index projection_runners_state on projection_runners (state);
