-- All tables. Schema: the first of search_path (`stead`).
-- No sequence, identity, trigger, function, advisory lock or LISTEN/NOTIFY: another database may be used some day.
-- Keys are collated "C": ids are ASCII, and the order of an index must not depend on the machine's locale.

-- ── Log ────────────────────────────────────────────────────────────────────────────────────────────────────────────

-- The only row is compared and set by every append.
create table log_head (
    log_id      text        not null,
    position    bigint      not null,
    commit_no   bigint      not null,
    fence       bigint      not null, -- incremented to exclude appends in flight: after an in-doubt commit, at a rebuild
    epoch       bigint      not null, -- raised by an operator after a restore or fail-over
    format      integer     not null, -- of tables and events; raised by migrations; checked by every program at start
    chain       bytea       not null,
    recorded_at timestamptz not null
) with (fillfactor = 10);

-- Stock postgres-es reads these column names. `json` keeps the bytes that were hashed.
-- Partitions are ranges of positions, so that a closed range can be archived and dropped.
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
    recorded_at    timestamptz not null
) partition by range (position);
-- Events whose range has no partition yet: an append never fails for lack of one. The unique constraint covers one
-- partition; across partitions the guard on log_stream ensures it, and verification checks it.
create table log_event_default partition of log_event (
    constraint log_event_default_stream unique (aggregate_type, aggregate_id, sequence)
) default;

create table log_stream (
    aggregate_type text   collate "C" not null,
    aggregate_id   text   collate "C" not null,
    version        bigint not null,
    prev_version   bigint not null,
    last_position  bigint not null,
    -- No event of the stream is before this position, so readers skip the partitions before it.
    first_position bigint not null default 0,
    primary key (aggregate_type, aggregate_id)
) with (fillfactor = 70);

-- Result of each command with an idempotency key. Without events, first_position = last_position + 1.
create table log_command (
    principal       text        collate "C" not null,
    idempotency_key text        collate "C" not null,
    request_hash    bytea       not null,
    first_position  bigint      not null,
    last_position   bigint      not null,
    response        json,
    expires_at      timestamptz not null,
    primary key (principal, idempotency_key)
);
-- Rows are inserted in order of expiry: a small brin index finds expired ones and costs an insert nothing.
create index log_command_expires on log_command using brin (expires_at);

create table log_snapshot (
    aggregate_type text     collate "C" not null,
    aggregate_id   text     collate "C" not null,
    sequence       bigint   not null,
    codec          smallint not null,
    schema_hash    bytea    not null,
    state          bytea    not null,
    -- Head when the state was read. A snapshot at or below a subject's fence is not used.
    read_position  bigint   not null default 0,
    primary key (aggregate_type, aggregate_id)
);

-- Positions and leases of projections, policies and mirrors.
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

-- Events that no policy could process because of an error of the server. They are retried periodically.
create table log_dead_letter (
    position   bigint      not null primary key,
    reason     text        not null,
    attempts   integer     not null,
    created_at timestamptz not null
);

-- Complete nodes of levels 8, 16, 24 … of the Merkle tree. Level 0 is log_event.leaf.
create table log_node (
    level integer not null,
    index bigint  not null,
    hash  bytea   not null,
    primary key (level, index)
);

-- Published checkpoints.
create table log_checkpoint (
    position     bigint      not null primary key,
    note         text        not null,
    published_at timestamptz not null
);

-- Public keys that sign or signed checkpoints.
create table log_checkpoint_key (
    public_key  bytea       not null primary key,
    valid_from  timestamptz not null,
    valid_until timestamptz,
    -- Size of the log at the last checkpoint that a retired key signed: it validates none of a larger log. The servers'
    -- key files have it too, and theirs is authoritative.
    last_size   bigint
);

-- Archived ranges.
create table log_archive (
    last_position   bigint      not null primary key,
    first_position  bigint      not null,
    manifest_sha256 bytea       not null,
    created_at      timestamptz not null,
    dropped_at      timestamptz -- the rows were dropped: the archive is read instead
);

-- ── Personal data ──────────────────────────────────────────────────────────────────────────────────────────────────

-- Data keys of subjects, wrapped by a key outside the database. A key is created before the first event that is
-- encrypted with it. Shredding deletes the bytes and keeps the row, so that no second key is created.
create table subject_key (
    subject          text        collate "C" not null primary key,
    wrapped          bytea,      -- null: shredded
    wrapped_by       text,
    created_at       timestamptz not null,
    shredded_at      timestamptz,
    erased_at        timestamptz, -- when no copy was left
    fence            bigint,      -- copies of data that was read up to this position are not written any more
    -- Number of requests to erase the copies: an erasure that began before the last one does not satisfy it.
    erasure_requests bigint      not null default 0
);
create index subject_key_open on subject_key (shredded_at) where shredded_at is not null and erased_at is null;
create index subject_key_fence on subject_key (fence) where fence is not null;

-- Names of principals. They are outside the log on purpose, where only ids are: here a name can be changed and erased.
create table principal_name (
    principal  text        collate "C" not null primary key,
    name       text        not null,
    updated_at timestamptz not null
);

-- Executions whose data was erased: none of it is stored again. Not in job_log, whose days are dropped.
create table erased_execution (
    execution text collate "C" not null primary key
);

-- ── Blobs and job logs ─────────────────────────────────────────────────────────────────────────────────────────────

-- Bytes by digest, written before the event that names them.
create table blob (
    digest     text        collate "C" not null primary key,
    bytes      bytea       not null,
    created_at timestamptz not null
);

-- Bytes that a runner uploaded for a report. Accepting the report moves them to blob; the row stays for a day and counts
-- towards quotas. Bytes that no report names are deleted with their row.
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

-- Bytes that the uploads of the last day count towards the quota of their execution and their runner: each at least
-- 4 KiB.
create table upload_charge (
    holder text   collate "C" not null primary key, -- an execution or a runner
    bytes  bigint not null
) with (fillfactor = 50);

-- Log bytes of executions. The id of an execution begins with its creation time, so a day is a range of ids:
-- job_log_20261121 and so on. Partitions are created ahead and dropped after the retention period.
create table job_log (
    execution    text     collate "C" not null,
    start_offset bigint   not null,
    end_offset   bigint   not null,
    codec        smallint not null, -- 0 uncompressed, 1 zstd
    bytes        bytea    not null,
    sha256       bytea    not null, -- of the uncompressed bytes
    primary key (execution, start_offset)
) partition by range (execution);
-- The bytes are compressed already.
alter table job_log alter column bytes set storage external;
-- Bytes of a day that has no partition yet; creating the partition moves them.
create table job_log_default partition of job_log default;

-- ── Runners ────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Not derived from events: after a loss every runner opens a new session.
create table runner_session (
    runner              text        collate "C" not null primary key,
    session             text        not null,
    generation          bigint      not null,
    server              text        not null,
    server_epoch        bigint      not null,
    boot_id             text        not null,
    journal_id          text        not null,
    opened_at           timestamptz not null,
    previous_journal_id text, -- of the previous session: a session that is opened again is still compared with it
    recent_sessions     text[]      not null -- newest first
) with (fillfactor = 70);

-- Latest signed head of each journal that a runner reported: it shows the customer whether the end of a journal was
-- cut off. Not derived from events; a loss loses only that.
create table runner_journal (
    runner      text        collate "C" not null,
    journal_id  text        collate "C" not null,
    entries     bigint      not null,
    head        json        not null, -- a DSSE envelope, signed by the runner
    received_at timestamptz not null,
    primary key (runner, journal_id)
) with (fillfactor = 70);

-- ── Projections ────────────────────────────────────────────────────────────────────────────────────────────────────
-- Derived from events; `stead projections rebuild` recreates them. Each has a JSON row by key, and the columns that
-- queries filter by. An index on a filter ends with the key, because lists are paginated by key.
-- A shadow table is created with `like … including all`: everything about a table must be declared here.

-- Inline: written by the append statement, always at the head of the log.

create table projection_job_queue (
    key      text    collate "C" not null primary key, -- the job
    data     json    not null,
    target   text    collate "C" not null, -- the install, or 'build'
    kind     text    not null,
    waiting  boolean not null,             -- a runner may claim it
    position bigint  not null              -- of the event that queued it last
) with (fillfactor = 70);
create index projection_job_queue_waiting on projection_job_queue (target, position) where waiting;

create table projection_timers (
    key    text        collate "C" not null primary key, -- the run, or a job with an open log
    data   json        not null,
    due_at timestamptz -- of the next timer of a run
) with (fillfactor = 70);
create index projection_timers_due on projection_timers (due_at) where due_at is not null;

create table projection_principals (
    key  text collate "C" not null primary key,
    data json not null
);

create table projection_tokens (
    key       text    collate "C" not null primary key, -- principal/token
    data      json    not null,
    token     text    collate "C" not null,
    sha256    text    collate "C" not null,
    principal text    collate "C" not null,
    revoked   boolean not null
);
create index projection_tokens_token on projection_tokens (token);
create index projection_tokens_sha256 on projection_tokens (sha256);
create index projection_tokens_principal on projection_tokens (principal);

create table projection_enrolments (
    key     text collate "C" not null primary key,
    data    json not null,
    sha256  text collate "C" not null,
    install text collate "C"
);
create index projection_enrolments_sha256 on projection_enrolments (sha256);
create index projection_enrolments_install on projection_enrolments (install);

-- Asynchronous: each follows the log from its consumer position.

create table projection_apps (
    key  text collate "C" not null primary key,
    data json not null,
    name text collate "C" not null
);
create index projection_apps_name on projection_apps (name);

create table projection_plugins (
    key  text collate "C" not null primary key, -- name
    data json not null
);

create table projection_config_versions (
    key            text   collate "C" not null primary key, -- app/version
    data           json   not null,
    app            text   collate "C" not null,
    config_version bigint not null
);
create index projection_config_versions_app on projection_config_versions (app, config_version);

create table projection_components (
    key     text    collate "C" not null primary key,
    data    json    not null,
    app     text    collate "C" not null,
    name    text    collate "C" not null,
    retired boolean not null
);
create index projection_components_app on projection_components (app, name);

create table projection_builds (
    key       text collate "C" not null primary key,
    data      json not null,
    app       text collate "C" not null,
    component text collate "C" not null,
    source    text collate "C" not null,
    job       text collate "C",
    state     text not null
) with (fillfactor = 80);
create index projection_builds_component on projection_builds (component, source);
create index projection_builds_app on projection_builds (app, key);
create index projection_builds_state on projection_builds (state, key);

create table projection_installs (
    key    text collate "C" not null primary key,
    data   json not null,
    app    text collate "C" not null,
    name   text collate "C" not null,
    runner text collate "C"
) with (fillfactor = 80);
create index projection_installs_name on projection_installs (name);
create index projection_installs_app on projection_installs (app, key);

create table projection_runs (
    key      text    collate "C" not null primary key,
    data     json    not null,
    install  text    collate "C" not null,
    state    text    not null,
    finished boolean not null
) with (fillfactor = 80);
create index projection_runs_install on projection_runs (install, key);
create index projection_runs_state on projection_runs (state, key);
create index projection_runs_open on projection_runs (key) where not finished;

create table projection_jobs (
    key      text    collate "C" not null primary key,
    data     json    not null,
    kind     text    not null,
    state    text    not null,
    finished boolean not null,
    install  text    collate "C",
    run      text    collate "C",
    build    text    collate "C",
    runner   text    collate "C"
) with (fillfactor = 80);
create index projection_jobs_install on projection_jobs (install, key);
create index projection_jobs_run on projection_jobs (run, key);
create index projection_jobs_build on projection_jobs (build, key);
create index projection_jobs_state on projection_jobs (state, key);
-- Open jobs of each runner.
create index projection_jobs_runner on projection_jobs (runner, key) where not finished;
create index projection_jobs_open on projection_jobs (key) where not finished;

create table projection_runners (
    key     text collate "C" not null primary key,
    data    json not null,
    mode    text not null,
    install text collate "C"
);
create index projection_runners_install on projection_runners (install);
-- Build runners are few among many.
create index projection_runners_build on projection_runners (key) where mode = 'build';
