-- Bytes that a runner uploaded for a report. They move to blob when the report is accepted; the row stays for a day, so
-- that quotas count it. What no report names is deleted with its row.
create table blob_upload (
    execution  text        collate "C" not null,
    digest     text        collate "C" not null,
    runner     text        collate "C" not null,
    size       bigint      not null,
    bytes      bytea,      -- null: in blob
    created_at timestamptz not null,
    primary key (execution, digest)
);
create index blob_upload_runner on blob_upload (runner);
create index blob_upload_created_at on blob_upload (created_at);
