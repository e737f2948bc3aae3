-- What is folded from the log, for reading. Losing all of it loses nothing: `stead projections rebuild`.
-- Every view is a row of JSON by key, and beside it the columns that questions ask for.
-- A list goes on from a key: an index of what it can be asked for has the key behind it.
-- Before a shadow becomes the view, it is made with `like … including all`, so everything is said here.

-- Synchronous: written by the append statement, exact with the log.

create table view_job_queue (
    key      text    collate "C" not null primary key, -- the job
    data     json    not null,
    target   text    collate "C" not null, -- the install, or 'build'
    kind     text    not null,
    waiting  boolean not null,             -- whether a runner may take it now
    position bigint  not null              -- of the event that queued it last
) with (fillfactor = 70);
create index view_job_queue_waiting on view_job_queue (target, position) where waiting;

create table view_timers (
    key    text        collate "C" not null primary key, -- the job or run
    data   json        not null,
    due_at timestamptz -- of its next timer; null: it has none now
) with (fillfactor = 70);
create index view_timers_due on view_timers (due_at) where due_at is not null;

create table view_principals (
    key  text collate "C" not null primary key,
    data json not null
);

create table view_tokens (
    key       text    collate "C" not null primary key, -- principal/token
    data      json    not null,
    token     text    collate "C" not null,
    sha256    text    collate "C" not null,
    principal text    collate "C" not null,
    revoked   boolean not null
);
create index view_tokens_token on view_tokens (token);
create index view_tokens_sha256 on view_tokens (sha256);
create index view_tokens_principal on view_tokens (principal);

create table view_enrolments (
    key     text collate "C" not null primary key,
    data    json not null,
    sha256  text collate "C" not null,
    install text collate "C"
);
create index view_enrolments_sha256 on view_enrolments (sha256);
create index view_enrolments_install on view_enrolments (install);

-- Asynchronous: they follow the log, each from its consumer position.

create table view_apps (
    key  text collate "C" not null primary key,
    data json not null,
    name text collate "C" not null
);
create index view_apps_name on view_apps (name);

create table view_config_versions (
    key     text    collate "C" not null primary key, -- app/version
    data    json    not null,
    app     text    collate "C" not null,
    config_version bigint not null
);
create index view_config_versions_app on view_config_versions (app, config_version);

create table view_components (
    key     text    collate "C" not null primary key,
    data    json    not null,
    app     text    collate "C" not null,
    name    text    collate "C" not null,
    retired boolean not null
);
create index view_components_app on view_components (app, name);

create table view_builds (
    key       text collate "C" not null primary key,
    data      json not null,
    app       text collate "C" not null,
    component text collate "C" not null,
    source    text collate "C" not null,
    job       text collate "C",
    state     text not null
) with (fillfactor = 80);
create index view_builds_component on view_builds (component, source);
create index view_builds_app on view_builds (app, key);
create index view_builds_state on view_builds (state, key);

create table view_installs (
    key    text collate "C" not null primary key,
    data   json not null,
    app    text collate "C" not null,
    name   text collate "C" not null,
    runner text collate "C"
) with (fillfactor = 80);
create index view_installs_name on view_installs (name);
create index view_installs_app on view_installs (app, key);

create table view_runs (
    key      text    collate "C" not null primary key,
    data     json    not null,
    install  text    collate "C" not null,
    state    text    not null,
    over     boolean not null
) with (fillfactor = 80);
create index view_runs_install on view_runs (install, key);
create index view_runs_state on view_runs (state, key);
create index view_runs_open on view_runs (key) where not over;

create table view_jobs (
    key     text    collate "C" not null primary key,
    data    json    not null,
    kind    text    not null,
    state   text    not null,
    over    boolean not null,
    install text    collate "C",
    run     text    collate "C",
    build   text    collate "C",
    runner  text    collate "C"
) with (fillfactor = 80);
create index view_jobs_install on view_jobs (install, key);
create index view_jobs_run on view_jobs (run, key);
create index view_jobs_build on view_jobs (build, key);
create index view_jobs_state on view_jobs (state, key);
-- What each runner holds now.
create index view_jobs_runner on view_jobs (runner, key) where not over;
create index view_jobs_open on view_jobs (key) where not over;

create table view_runners (
    key     text collate "C" not null primary key,
    data    json not null,
    mode    text not null,
    install text collate "C"
);
create index view_runners_install on view_runners (install);
-- Few among as many as there are installs.
create index view_runners_build on view_runners (key) where mode = 'build';
