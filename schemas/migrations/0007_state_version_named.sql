-- Versions that the log names are kept, beside the newest ones.
alter table state_version add column is_named boolean not null default false;
