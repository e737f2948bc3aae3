-- The log and what is written with it. Schema: whatever search_path names first (`stead`).
-- Portable on purpose: no sequence, identity, trigger, function, advisory lock or LISTEN/NOTIFY.
-- Keys are collated "C": ids are ASCII, and an index must not change its order with the machine's locale.

-- The one row that every append compares and sets.
create table log_head (
    log_id      text        not null,
    position    bigint      not null,
    commit_no   bigint      not null,
    turn        bigint      not null, -- raised to settle doubt and at a swap of views
    epoch       bigint      not null, -- raised by an operator after a restore or fail-over
    layout      integer     not null, -- raised by migrations
    chain       bytea       not null,
    recorded_at timestamptz not null
) with (fillfactor = 10);

-- Column names are the ones that stock postgres-es reads. `json` keeps the bytes that were hashed.
create table log_event (
    position       bigint      not null primary key,
    event_id       uuid        not null,
    aggregate_type text        collate "C" not null,
    aggregate_id   text        collate "C" not null,
    sequence       bigint      not null,
    event_type     text        not null,
    event_version  text        not null,
    payload        json        not null,
    metadata       json        not null,
    salt           bytea       not null,
    leaf           bytea       not null,
    chain          bytea       not null,
    commit_no      bigint      not null,
    recorded_at    timestamptz not null,
    unique (aggregate_type, aggregate_id, sequence)
);

create table log_stream (
    aggregate_type text   collate "C" not null,
    aggregate_id   text   collate "C" not null,
    version        bigint not null,
    prev_version   bigint not null,
    last_position  bigint not null,
    primary key (aggregate_type, aggregate_id)
) with (fillfactor = 70);

-- What a command with an idempotency key answered. No events: first_position = last_position + 1.
create table log_command (
    principal       text        collate "C" not null,
    idempotency_key text        collate "C" not null,
    request_hash    bytea       not null,
    first_position  bigint      not null,
    last_position   bigint      not null,
    answer          json,
    expires_at      timestamptz not null,
    primary key (principal, idempotency_key)
);
-- Rows come in the order in which they expire: a few bytes find what to sweep, and cost an insert nothing.
create index log_command_expires on log_command using brin (expires_at);

create table log_snapshot (
    aggregate_type text     collate "C" not null,
    aggregate_id   text     collate "C" not null,
    sequence       bigint   not null,
    codec          smallint not null,
    schema_hash    bytea    not null,
    state          bytea    not null,
    primary key (aggregate_type, aggregate_id)
);

-- Projections, policies, mirrors: how far each has come, and who moves it.
create table log_consumer (
    name        text    collate "C" not null,
    version     integer not null,
    shard       integer not null,
    position    bigint  not null,
    owner       text,
    owner_epoch bigint  not null,
    lease_until timestamptz,
    primary key (name, version, shard)
) with (fillfactor = 50);

-- Facts that no policy could react to for a reason of the server's own: tried again now and then.
create table log_parked (
    position  bigint      not null primary key,
    reason    text        not null,
    tries     integer     not null,
    parked_at timestamptz not null
);

-- Complete nodes of levels 8, 16, 24 … of the tree over the log. Level 0 is log_event.leaf.
create table log_node (
    level integer not null,
    index bigint  not null,
    hash  bytea   not null,
    primary key (level, index)
);

-- Signed checkpoints that were published.
create table log_seal (
    position  bigint      not null primary key,
    note      text        not null,
    sealed_at timestamptz not null
);

create table log_note_key (
    public_key  bytea       not null primary key,
    valid_from  timestamptz not null,
    valid_until timestamptz
);

-- Bytes by digest, written before the event that names them.
create table blob (
    digest     text        collate "C" not null primary key,
    bytes      bytea       not null,
    created_at timestamptz not null
);

-- Log bytes of executions. An execution's id begins with the moment it was made, so a day is a range of ids:
-- job_log_20261121 and so on, made ahead by whoever may make tables, and dropped when they are no longer kept.
create table job_log (
    execution    text     collate "C" not null,
    start_offset bigint   not null,
    end_offset   bigint   not null,
    codec        smallint not null, -- 0 as it is, 1 zstd
    bytes        bytea    not null,
    sha256       bytea    not null, -- of the bytes before compression
    primary key (execution, start_offset)
) partition by range (execution);
-- The bytes are compressed already.
alter table job_log alter column bytes set storage external;
-- What comes for a day that was not made yet; it moves when the day is made.
create table job_log_rest partition of job_log default;

-- Names of principals, outside the log on purpose: there they are prn_… for ever, here a name can be changed
-- and forgotten.
create table principal_name (
    principal text        collate "C" not null primary key,
    name      text        not null,
    named_at  timestamptz not null
);

-- Not derived from events: losing it means that every runner opens a session again.
create table runner_session (
    runner       text        collate "C" not null primary key,
    session      text        not null,
    generation   bigint      not null,
    server       text        not null,
    server_epoch bigint      not null,
    boot_id      text        not null,
    journal_id   text        not null,
    opened_at    timestamptz not null,
    former_journal_id text, -- of the session before: a session that is opened again is still compared with it
    openings     text[]      not null -- the last names under which a session was opened, the newest first
) with (fillfactor = 70);
