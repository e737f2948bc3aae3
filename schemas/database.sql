CREATE SCHEMA stead;
CREATE TABLE stead.blob (
    digest text NOT NULL COLLATE pg_catalog."C",
    bytes bytea NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE stead.blob_upload (
    execution text NOT NULL COLLATE pg_catalog."C",
    digest text NOT NULL COLLATE pg_catalog."C",
    runner text NOT NULL COLLATE pg_catalog."C",
    size bigint NOT NULL,
    bytes bytea,
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE stead.erased_execution (
    execution text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE stead.job_log (
    execution text NOT NULL COLLATE pg_catalog."C",
    start_offset bigint NOT NULL,
    end_offset bigint NOT NULL,
    codec smallint NOT NULL,
    bytes bytea NOT NULL,
    sha256 bytea NOT NULL
)
PARTITION BY RANGE (execution);
ALTER TABLE ONLY stead.job_log ALTER COLUMN bytes SET STORAGE EXTERNAL;
CREATE TABLE stead.job_log_rest (
    execution text NOT NULL COLLATE pg_catalog."C",
    start_offset bigint NOT NULL,
    end_offset bigint NOT NULL,
    codec smallint NOT NULL,
    bytes bytea NOT NULL,
    sha256 bytea NOT NULL
);
ALTER TABLE ONLY stead.job_log_rest ALTER COLUMN bytes SET STORAGE EXTERNAL;
CREATE TABLE stead.log_archive (
    last_position bigint NOT NULL,
    first_position bigint NOT NULL,
    manifest_sha256 bytea NOT NULL,
    made_at timestamp with time zone NOT NULL,
    dropped_at timestamp with time zone
);
CREATE TABLE stead.log_command (
    principal text NOT NULL COLLATE pg_catalog."C",
    idempotency_key text NOT NULL COLLATE pg_catalog."C",
    request_hash bytea NOT NULL,
    first_position bigint NOT NULL,
    last_position bigint NOT NULL,
    answer json,
    expires_at timestamp with time zone NOT NULL
);
CREATE TABLE stead.log_consumer (
    name text NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    shard integer NOT NULL,
    "position" bigint NOT NULL,
    owner text,
    owner_epoch bigint NOT NULL,
    lease_until timestamp with time zone
)
WITH (fillfactor='50');
CREATE TABLE stead.log_event (
    "position" bigint NOT NULL,
    event_id uuid NOT NULL,
    aggregate_type text NOT NULL COLLATE pg_catalog."C",
    aggregate_id text NOT NULL COLLATE pg_catalog."C",
    sequence bigint NOT NULL,
    event_type text NOT NULL,
    event_version text NOT NULL,
    payload json NOT NULL,
    metadata json NOT NULL,
    salt bytea NOT NULL,
    leaf bytea NOT NULL,
    chain bytea NOT NULL,
    commit_no bigint NOT NULL,
    recorded_at timestamp with time zone NOT NULL
)
PARTITION BY RANGE ("position");
CREATE TABLE stead.log_event_rest (
    "position" bigint NOT NULL,
    event_id uuid NOT NULL,
    aggregate_type text NOT NULL COLLATE pg_catalog."C",
    aggregate_id text NOT NULL COLLATE pg_catalog."C",
    sequence bigint NOT NULL,
    event_type text NOT NULL,
    event_version text NOT NULL,
    payload json NOT NULL,
    metadata json NOT NULL,
    salt bytea NOT NULL,
    leaf bytea NOT NULL,
    chain bytea NOT NULL,
    commit_no bigint NOT NULL,
    recorded_at timestamp with time zone NOT NULL
);
CREATE TABLE stead.log_head (
    log_id text NOT NULL,
    "position" bigint NOT NULL,
    commit_no bigint NOT NULL,
    turn bigint NOT NULL,
    epoch bigint NOT NULL,
    layout integer NOT NULL,
    chain bytea NOT NULL,
    recorded_at timestamp with time zone NOT NULL
)
WITH (fillfactor='10');
CREATE TABLE stead.log_node (
    level integer NOT NULL,
    index bigint NOT NULL,
    hash bytea NOT NULL
);
CREATE TABLE stead.log_note_key (
    public_key bytea NOT NULL,
    valid_from timestamp with time zone NOT NULL,
    valid_until timestamp with time zone,
    last_size bigint
);
CREATE TABLE stead.log_parked (
    "position" bigint NOT NULL,
    reason text NOT NULL,
    tries integer NOT NULL,
    parked_at timestamp with time zone NOT NULL
);
CREATE TABLE stead.log_seal (
    "position" bigint NOT NULL,
    note text NOT NULL,
    sealed_at timestamp with time zone NOT NULL
);
CREATE TABLE stead.log_snapshot (
    aggregate_type text NOT NULL COLLATE pg_catalog."C",
    aggregate_id text NOT NULL COLLATE pg_catalog."C",
    sequence bigint NOT NULL,
    codec smallint NOT NULL,
    schema_hash bytea NOT NULL,
    state bytea NOT NULL,
    read_position bigint DEFAULT 0 NOT NULL
);
CREATE TABLE stead.log_stream (
    aggregate_type text NOT NULL COLLATE pg_catalog."C",
    aggregate_id text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    prev_version bigint NOT NULL,
    last_position bigint NOT NULL,
    since_position bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='70');
CREATE TABLE stead.migration (
    name text NOT NULL,
    sha256 bytea NOT NULL,
    ran_at timestamp with time zone NOT NULL
);
CREATE TABLE stead.principal_name (
    principal text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL,
    named_at timestamp with time zone NOT NULL
);
CREATE TABLE stead.runner_journal (
    runner text NOT NULL COLLATE pg_catalog."C",
    journal_id text NOT NULL COLLATE pg_catalog."C",
    entries bigint NOT NULL,
    head json NOT NULL,
    told_at timestamp with time zone NOT NULL
)
WITH (fillfactor='70');
CREATE TABLE stead.runner_session (
    runner text NOT NULL COLLATE pg_catalog."C",
    session text NOT NULL,
    generation bigint NOT NULL,
    server text NOT NULL,
    server_epoch bigint NOT NULL,
    boot_id text NOT NULL,
    journal_id text NOT NULL,
    opened_at timestamp with time zone NOT NULL,
    former_journal_id text,
    openings text[] NOT NULL
)
WITH (fillfactor='70');
CREATE TABLE stead.subject_key (
    subject text NOT NULL COLLATE pg_catalog."C",
    wrapped bytea,
    wrapped_by text,
    made_at timestamp with time zone NOT NULL,
    shredded_at timestamp with time zone,
    erased_at timestamp with time zone,
    fence bigint,
    requests bigint DEFAULT 0 NOT NULL
);
CREATE TABLE stead.upload_charge (
    holder text NOT NULL COLLATE pg_catalog."C",
    bytes bigint NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE stead.view_apps (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE stead.view_builds (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    app text NOT NULL COLLATE pg_catalog."C",
    component text NOT NULL COLLATE pg_catalog."C",
    source text NOT NULL COLLATE pg_catalog."C",
    job text COLLATE pg_catalog."C",
    state text NOT NULL
)
WITH (fillfactor='80');
CREATE TABLE stead.view_components (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    app text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    retired boolean NOT NULL
);
CREATE TABLE stead.view_config_versions (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    app text NOT NULL COLLATE pg_catalog."C",
    config_version bigint NOT NULL
);
CREATE TABLE stead.view_enrolments (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    sha256 text NOT NULL COLLATE pg_catalog."C",
    install text COLLATE pg_catalog."C"
);
CREATE TABLE stead.view_installs (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    app text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    runner text COLLATE pg_catalog."C"
)
WITH (fillfactor='80');
CREATE TABLE stead.view_job_queue (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    target text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL,
    waiting boolean NOT NULL,
    "position" bigint NOT NULL
)
WITH (fillfactor='70');
CREATE TABLE stead.view_jobs (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    kind text NOT NULL,
    state text NOT NULL,
    over boolean NOT NULL,
    install text COLLATE pg_catalog."C",
    run text COLLATE pg_catalog."C",
    build text COLLATE pg_catalog."C",
    runner text COLLATE pg_catalog."C"
)
WITH (fillfactor='80');
CREATE TABLE stead.view_principals (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL
);
CREATE TABLE stead.view_runners (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    mode text NOT NULL,
    install text COLLATE pg_catalog."C"
);
CREATE TABLE stead.view_runs (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    install text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL,
    over boolean NOT NULL
)
WITH (fillfactor='80');
CREATE TABLE stead.view_timers (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    due_at timestamp with time zone
)
WITH (fillfactor='70');
CREATE TABLE stead.view_tokens (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    token text NOT NULL COLLATE pg_catalog."C",
    sha256 text NOT NULL COLLATE pg_catalog."C",
    principal text NOT NULL COLLATE pg_catalog."C",
    revoked boolean NOT NULL
);
ALTER TABLE ONLY stead.job_log ATTACH PARTITION stead.job_log_rest DEFAULT;
ALTER TABLE ONLY stead.log_event ATTACH PARTITION stead.log_event_rest DEFAULT;
ALTER TABLE ONLY stead.blob
    ADD CONSTRAINT blob_pkey PRIMARY KEY (digest);
ALTER TABLE ONLY stead.blob_upload
    ADD CONSTRAINT blob_upload_pkey PRIMARY KEY (execution, digest);
ALTER TABLE ONLY stead.erased_execution
    ADD CONSTRAINT erased_execution_pkey PRIMARY KEY (execution);
ALTER TABLE ONLY stead.job_log
    ADD CONSTRAINT job_log_pkey PRIMARY KEY (execution, start_offset);
ALTER TABLE ONLY stead.job_log_rest
    ADD CONSTRAINT job_log_rest_pkey PRIMARY KEY (execution, start_offset);
ALTER TABLE ONLY stead.log_archive
    ADD CONSTRAINT log_archive_pkey PRIMARY KEY (last_position);
ALTER TABLE ONLY stead.log_command
    ADD CONSTRAINT log_command_pkey PRIMARY KEY (principal, idempotency_key);
ALTER TABLE ONLY stead.log_consumer
    ADD CONSTRAINT log_consumer_pkey PRIMARY KEY (name, version, shard);
ALTER TABLE ONLY stead.log_event
    ADD CONSTRAINT log_event_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY stead.log_event_rest
    ADD CONSTRAINT log_event_rest_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY stead.log_event_rest
    ADD CONSTRAINT log_event_rest_stream UNIQUE (aggregate_type, aggregate_id, sequence);
ALTER TABLE ONLY stead.log_node
    ADD CONSTRAINT log_node_pkey PRIMARY KEY (level, index);
ALTER TABLE ONLY stead.log_note_key
    ADD CONSTRAINT log_note_key_pkey PRIMARY KEY (public_key);
ALTER TABLE ONLY stead.log_parked
    ADD CONSTRAINT log_parked_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY stead.log_seal
    ADD CONSTRAINT log_seal_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY stead.log_snapshot
    ADD CONSTRAINT log_snapshot_pkey PRIMARY KEY (aggregate_type, aggregate_id);
ALTER TABLE ONLY stead.log_stream
    ADD CONSTRAINT log_stream_pkey PRIMARY KEY (aggregate_type, aggregate_id);
ALTER TABLE ONLY stead.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (name);
ALTER TABLE ONLY stead.principal_name
    ADD CONSTRAINT principal_name_pkey PRIMARY KEY (principal);
ALTER TABLE ONLY stead.runner_journal
    ADD CONSTRAINT runner_journal_pkey PRIMARY KEY (runner, journal_id);
ALTER TABLE ONLY stead.runner_session
    ADD CONSTRAINT runner_session_pkey PRIMARY KEY (runner);
ALTER TABLE ONLY stead.subject_key
    ADD CONSTRAINT subject_key_pkey PRIMARY KEY (subject);
ALTER TABLE ONLY stead.upload_charge
    ADD CONSTRAINT upload_charge_pkey PRIMARY KEY (holder);
ALTER TABLE ONLY stead.view_apps
    ADD CONSTRAINT view_apps_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.view_builds
    ADD CONSTRAINT view_builds_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.view_components
    ADD CONSTRAINT view_components_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.view_config_versions
    ADD CONSTRAINT view_config_versions_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.view_enrolments
    ADD CONSTRAINT view_enrolments_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.view_installs
    ADD CONSTRAINT view_installs_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.view_job_queue
    ADD CONSTRAINT view_job_queue_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.view_jobs
    ADD CONSTRAINT view_jobs_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.view_principals
    ADD CONSTRAINT view_principals_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.view_runners
    ADD CONSTRAINT view_runners_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.view_runs
    ADD CONSTRAINT view_runs_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.view_timers
    ADD CONSTRAINT view_timers_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.view_tokens
    ADD CONSTRAINT view_tokens_pkey PRIMARY KEY (key);
CREATE INDEX blob_upload_created_at ON stead.blob_upload USING btree (created_at);
CREATE INDEX blob_upload_runner ON stead.blob_upload USING btree (runner);
CREATE INDEX log_command_expires ON stead.log_command USING brin (expires_at);
CREATE INDEX subject_key_fence ON stead.subject_key USING btree (fence) WHERE (fence IS NOT NULL);
CREATE INDEX subject_key_open ON stead.subject_key USING btree (shredded_at) WHERE ((shredded_at IS NOT NULL) AND (erased_at IS NULL));
CREATE INDEX view_apps_name ON stead.view_apps USING btree (name);
CREATE INDEX view_builds_app ON stead.view_builds USING btree (app, key);
CREATE INDEX view_builds_component ON stead.view_builds USING btree (component, source);
CREATE INDEX view_builds_state ON stead.view_builds USING btree (state, key);
CREATE INDEX view_components_app ON stead.view_components USING btree (app, name);
CREATE INDEX view_config_versions_app ON stead.view_config_versions USING btree (app, config_version);
CREATE INDEX view_enrolments_install ON stead.view_enrolments USING btree (install);
CREATE INDEX view_enrolments_sha256 ON stead.view_enrolments USING btree (sha256);
CREATE INDEX view_installs_app ON stead.view_installs USING btree (app, key);
CREATE INDEX view_installs_name ON stead.view_installs USING btree (name);
CREATE INDEX view_job_queue_waiting ON stead.view_job_queue USING btree (target, "position") WHERE waiting;
CREATE INDEX view_jobs_build ON stead.view_jobs USING btree (build, key);
CREATE INDEX view_jobs_install ON stead.view_jobs USING btree (install, key);
CREATE INDEX view_jobs_open ON stead.view_jobs USING btree (key) WHERE (NOT over);
CREATE INDEX view_jobs_run ON stead.view_jobs USING btree (run, key);
CREATE INDEX view_jobs_runner ON stead.view_jobs USING btree (runner, key) WHERE (NOT over);
CREATE INDEX view_jobs_state ON stead.view_jobs USING btree (state, key);
CREATE INDEX view_runners_build ON stead.view_runners USING btree (key) WHERE (mode = 'build'::text);
CREATE INDEX view_runners_install ON stead.view_runners USING btree (install);
CREATE INDEX view_runs_install ON stead.view_runs USING btree (install, key);
CREATE INDEX view_runs_open ON stead.view_runs USING btree (key) WHERE (NOT over);
CREATE INDEX view_runs_state ON stead.view_runs USING btree (state, key);
CREATE INDEX view_timers_due ON stead.view_timers USING btree (due_at) WHERE (due_at IS NOT NULL);
CREATE INDEX view_tokens_principal ON stead.view_tokens USING btree (principal);
CREATE INDEX view_tokens_sha256 ON stead.view_tokens USING btree (sha256);
CREATE INDEX view_tokens_token ON stead.view_tokens USING btree (token);
ALTER INDEX stead.job_log_pkey ATTACH PARTITION stead.job_log_rest_pkey;
ALTER INDEX stead.log_event_pkey ATTACH PARTITION stead.log_event_rest_pkey;
GRANT USAGE ON SCHEMA stead TO stead_app;
GRANT SELECT,INSERT ON TABLE stead.blob TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.blob_upload TO stead_app;
GRANT SELECT,INSERT ON TABLE stead.erased_execution TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.job_log TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.job_log_rest TO stead_app;
GRANT SELECT ON TABLE stead.log_archive TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.log_command TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.log_consumer TO stead_app;
GRANT SELECT,INSERT ON TABLE stead.log_event TO stead_app;
GRANT SELECT ON TABLE stead.log_event_rest TO stead_app;
GRANT SELECT,UPDATE ON TABLE stead.log_head TO stead_app;
GRANT SELECT,INSERT ON TABLE stead.log_node TO stead_app;
GRANT SELECT,INSERT ON TABLE stead.log_note_key TO stead_app;
GRANT UPDATE(valid_until) ON TABLE stead.log_note_key TO stead_app;
GRANT UPDATE(last_size) ON TABLE stead.log_note_key TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.log_parked TO stead_app;
GRANT SELECT,INSERT ON TABLE stead.log_seal TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.log_snapshot TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.log_stream TO stead_app;
GRANT SELECT ON TABLE stead.migration TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.principal_name TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.runner_journal TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.runner_session TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.subject_key TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.upload_charge TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.view_apps TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.view_builds TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.view_components TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.view_config_versions TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.view_enrolments TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.view_installs TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.view_job_queue TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.view_jobs TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.view_principals TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.view_runners TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.view_runs TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.view_timers TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.view_tokens TO stead_app;
