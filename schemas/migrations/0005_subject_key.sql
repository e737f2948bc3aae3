-- The keys of subjects, wrapped by a key that is not here. Made before the first event that is sealed with it. Shredded:
-- the bytes are gone and the row stays, so that nobody makes another.
create table subject_key (
    subject     text        collate "C" not null primary key,
    wrapped     bytea,       -- null: shredded
    wrapped_by  text,
    made_at     timestamptz not null,
    shredded_at timestamptz,
    erased_at   timestamptz, -- when no copy was left
    fence       bigint       -- copies made from what was read up to this position are not written any more
);
create index subject_key_open on subject_key (shredded_at) where shredded_at is not null and erased_at is null;
create index subject_key_fence on subject_key (fence) where fence is not null;
-- The position that was known when the state was begun to be read. Not beyond a fence: it is not used.
alter table log_snapshot add column read_position bigint not null default 0;
-- From here on what is somebody's is sealed: an older program would take the seal for the value.
update log_head set layout = 2;
