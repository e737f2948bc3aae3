-- The log in ranges of positions, so that a closed range can be written into an archive and dropped. Rows stay where
-- they are: the table becomes the partition for whatever has no range yet, and `stead migrate` gives it one.
alter table log_event rename to log_event_rest;
alter index log_event_pkey rename to log_event_rest_pkey;
alter index log_event_aggregate_type_aggregate_id_sequence_key rename to log_event_rest_stream;
create table log_event (like log_event_rest) partition by range (position);
alter table log_event add primary key (position);
-- What comes for a range that was not made yet: an append never fails for want of one. That a stream has each sequence
-- once is unique within a partition only; over all of them the guard of log_stream sees to it, and `verify` looks.
alter table log_event attach partition log_event_rest default;

-- No event of the stream is before this position: whoever reads it leaves the ranges before out.
alter table log_stream add column since_position bigint not null default 0;
update log_stream s set since_position = e.position from log_event e
 where e.aggregate_type = s.aggregate_type and e.aggregate_id = s.aggregate_id and e.sequence = 1;

-- Closed ranges that were written into an archive, and which of them are nowhere else any more.
create table log_archive (
    last_position   bigint      not null primary key,
    first_position  bigint      not null,
    manifest_sha256 bytea       not null,
    made_at         timestamptz not null,
    dropped_at      timestamptz -- the rows are gone: the archive is read in their place
);
