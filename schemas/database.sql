CREATE SCHEMA stead;
CREATE TABLE stead.blob (
    digest text NOT NULL COLLATE pg_catalog."C",
    bytes bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    subject text COLLATE pg_catalog."C"
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
CREATE TABLE stead.job_log_default (
    execution text NOT NULL COLLATE pg_catalog."C",
    start_offset bigint NOT NULL,
    end_offset bigint NOT NULL,
    codec smallint NOT NULL,
    bytes bytea NOT NULL,
    sha256 bytea NOT NULL
);
ALTER TABLE ONLY stead.job_log_default ALTER COLUMN bytes SET STORAGE EXTERNAL;
CREATE TABLE stead.log_archive (
    last_position bigint NOT NULL,
    first_position bigint NOT NULL,
    manifest_sha256 bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    dropped_at timestamp with time zone
);
CREATE TABLE stead.log_checkpoint (
    "position" bigint NOT NULL,
    note text NOT NULL,
    published_at timestamp with time zone NOT NULL
);
CREATE TABLE stead.log_checkpoint_key (
    public_key bytea NOT NULL,
    valid_from timestamp with time zone NOT NULL,
    valid_until timestamp with time zone,
    last_size bigint
);
CREATE TABLE stead.log_command (
    principal text NOT NULL COLLATE pg_catalog."C",
    idempotency_key text NOT NULL COLLATE pg_catalog."C",
    request_hash bytea NOT NULL,
    first_position bigint NOT NULL,
    last_position bigint NOT NULL,
    response json,
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
CREATE TABLE stead.log_dead_letter (
    "position" bigint NOT NULL,
    reason text NOT NULL,
    attempts integer NOT NULL,
    created_at timestamp with time zone NOT NULL
);
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
CREATE TABLE stead.log_event_default (
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
    fence bigint NOT NULL,
    epoch bigint NOT NULL,
    format integer NOT NULL,
    chain bytea NOT NULL,
    recorded_at timestamp with time zone NOT NULL
)
WITH (fillfactor='10');
CREATE TABLE stead.log_node (
    level integer NOT NULL,
    index bigint NOT NULL,
    hash bytea NOT NULL
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
    first_position bigint DEFAULT 0 NOT NULL
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
    updated_at timestamp with time zone NOT NULL
);
CREATE TABLE stead.projection_apps (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE stead.projection_builds (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    app text NOT NULL COLLATE pg_catalog."C",
    component text NOT NULL COLLATE pg_catalog."C",
    source text NOT NULL COLLATE pg_catalog."C",
    job text COLLATE pg_catalog."C",
    state text NOT NULL
)
WITH (fillfactor='80');
CREATE TABLE stead.projection_components (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    app text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    retired boolean NOT NULL
);
CREATE TABLE stead.projection_config_versions (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    app text NOT NULL COLLATE pg_catalog."C",
    config_version bigint NOT NULL
);
CREATE TABLE stead.projection_enrolments (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    sha256 text NOT NULL COLLATE pg_catalog."C",
    install text COLLATE pg_catalog."C"
);
CREATE TABLE stead.projection_installs (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    app text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    runner text COLLATE pg_catalog."C",
    state text,
    version bigint
)
WITH (fillfactor='80');
CREATE TABLE stead.projection_job_queue (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    target text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL,
    waiting boolean NOT NULL,
    "position" bigint NOT NULL
)
WITH (fillfactor='70');
CREATE TABLE stead.projection_jobs (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    kind text NOT NULL,
    state text NOT NULL,
    finished boolean NOT NULL,
    install text COLLATE pg_catalog."C",
    run text COLLATE pg_catalog."C",
    build text COLLATE pg_catalog."C",
    runner text COLLATE pg_catalog."C"
)
WITH (fillfactor='80');
CREATE TABLE stead.projection_plugins (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL
);
CREATE TABLE stead.projection_principals (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL
);
CREATE TABLE stead.projection_runners (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    mode text NOT NULL,
    install text COLLATE pg_catalog."C",
    state text
);
CREATE TABLE stead.projection_runs (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    install text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL,
    finished boolean NOT NULL,
    kind text,
    drift boolean
)
WITH (fillfactor='80');
CREATE TABLE stead.projection_timers (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    due_at timestamp with time zone
)
WITH (fillfactor='70');
CREATE TABLE stead.projection_tokens (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL,
    token text NOT NULL COLLATE pg_catalog."C",
    sha256 text NOT NULL COLLATE pg_catalog."C",
    principal text NOT NULL COLLATE pg_catalog."C",
    revoked boolean NOT NULL
);
CREATE TABLE stead.projection_webhooks (
    key text NOT NULL COLLATE pg_catalog."C",
    data json NOT NULL
);
CREATE TABLE stead.runner_journal (
    runner text NOT NULL COLLATE pg_catalog."C",
    journal_id text NOT NULL COLLATE pg_catalog."C",
    entries bigint NOT NULL,
    head json NOT NULL,
    received_at timestamp with time zone NOT NULL
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
    previous_journal_id text,
    recent_sessions text[] NOT NULL
)
WITH (fillfactor='70');
CREATE TABLE stead.sensitive_value (
    install text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    consumers jsonb NOT NULL,
    signed boolean NOT NULL,
    json boolean NOT NULL,
    ciphertext bytea,
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE stead.state_fence (
    install text NOT NULL COLLATE pg_catalog."C",
    component text NOT NULL COLLATE pg_catalog."C",
    fence_epoch bigint NOT NULL,
    fence_position bigint NOT NULL,
    job text COLLATE pg_catalog."C"
);
CREATE TABLE stead.state_version (
    install text NOT NULL COLLATE pg_catalog."C",
    component text NOT NULL COLLATE pg_catalog."C",
    number bigint NOT NULL,
    lineage text NOT NULL COLLATE pg_catalog."C",
    serial bigint NOT NULL,
    fence_epoch bigint NOT NULL,
    fence_position bigint NOT NULL,
    digest text NOT NULL COLLATE pg_catalog."C",
    is_empty boolean NOT NULL,
    size bigint NOT NULL,
    ciphertext bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    is_named boolean DEFAULT false NOT NULL
);
ALTER TABLE ONLY stead.state_version ALTER COLUMN ciphertext SET STORAGE EXTERNAL;
CREATE TABLE stead.subject_data (
    subject text NOT NULL COLLATE pg_catalog."C",
    digest text NOT NULL COLLATE pg_catalog."C",
    execution text NOT NULL COLLATE pg_catalog."C",
    ciphertext bytea NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE stead.subject_key (
    subject text NOT NULL COLLATE pg_catalog."C",
    wrapped bytea,
    wrapped_by text,
    created_at timestamp with time zone NOT NULL,
    shredded_at timestamp with time zone,
    erased_at timestamp with time zone,
    fence bigint,
    erasure_requests bigint DEFAULT 0 NOT NULL
);
CREATE TABLE stead.ui_session (
    secret_sha256 bytea NOT NULL,
    principal text NOT NULL COLLATE pg_catalog."C",
    token text NOT NULL COLLATE pg_catalog."C",
    created_at timestamp with time zone NOT NULL,
    used_at timestamp with time zone NOT NULL
);
CREATE TABLE stead.upload_charge (
    holder text NOT NULL COLLATE pg_catalog."C",
    bytes bigint NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE stead.webhook_delivery (
    webhook text NOT NULL COLLATE pg_catalog."C",
    "position" bigint NOT NULL,
    topic text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    attempts integer DEFAULT 0 NOT NULL,
    due_at timestamp with time zone NOT NULL,
    status integer,
    error text,
    created_at timestamp with time zone NOT NULL,
    delivered_at timestamp with time zone
);
CREATE TABLE stead.webhook_endpoint (
    id text NOT NULL COLLATE pg_catalog."C",
    webhook text NOT NULL COLLATE pg_catalog."C",
    url text NOT NULL,
    secret bytea NOT NULL,
    topics text[] DEFAULT '{}'::text[] NOT NULL,
    format text DEFAULT ''::text NOT NULL,
    active boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone NOT NULL,
    replaced_at timestamp with time zone
);
CREATE TABLE stead.wrapped_seed (
    install text NOT NULL COLLATE pg_catalog."C",
    runner text NOT NULL COLLATE pg_catalog."C",
    recipient text NOT NULL COLLATE pg_catalog."C",
    generation bigint NOT NULL,
    wrapped text NOT NULL,
    stored_at timestamp with time zone NOT NULL
);
ALTER TABLE ONLY stead.job_log ATTACH PARTITION stead.job_log_default DEFAULT;
ALTER TABLE ONLY stead.log_event ATTACH PARTITION stead.log_event_default DEFAULT;
ALTER TABLE ONLY stead.blob
    ADD CONSTRAINT blob_pkey PRIMARY KEY (digest);
ALTER TABLE ONLY stead.blob_upload
    ADD CONSTRAINT blob_upload_pkey PRIMARY KEY (execution, digest);
ALTER TABLE ONLY stead.erased_execution
    ADD CONSTRAINT erased_execution_pkey PRIMARY KEY (execution);
ALTER TABLE ONLY stead.job_log
    ADD CONSTRAINT job_log_pkey PRIMARY KEY (execution, start_offset);
ALTER TABLE ONLY stead.job_log_default
    ADD CONSTRAINT job_log_default_pkey PRIMARY KEY (execution, start_offset);
ALTER TABLE ONLY stead.log_archive
    ADD CONSTRAINT log_archive_pkey PRIMARY KEY (last_position);
ALTER TABLE ONLY stead.log_checkpoint_key
    ADD CONSTRAINT log_checkpoint_key_pkey PRIMARY KEY (public_key);
ALTER TABLE ONLY stead.log_checkpoint
    ADD CONSTRAINT log_checkpoint_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY stead.log_command
    ADD CONSTRAINT log_command_pkey PRIMARY KEY (principal, idempotency_key);
ALTER TABLE ONLY stead.log_consumer
    ADD CONSTRAINT log_consumer_pkey PRIMARY KEY (name, version, shard);
ALTER TABLE ONLY stead.log_dead_letter
    ADD CONSTRAINT log_dead_letter_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY stead.log_event
    ADD CONSTRAINT log_event_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY stead.log_event_default
    ADD CONSTRAINT log_event_default_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY stead.log_event_default
    ADD CONSTRAINT log_event_default_stream UNIQUE (aggregate_type, aggregate_id, sequence);
ALTER TABLE ONLY stead.log_node
    ADD CONSTRAINT log_node_pkey PRIMARY KEY (level, index);
ALTER TABLE ONLY stead.log_snapshot
    ADD CONSTRAINT log_snapshot_pkey PRIMARY KEY (aggregate_type, aggregate_id);
ALTER TABLE ONLY stead.log_stream
    ADD CONSTRAINT log_stream_pkey PRIMARY KEY (aggregate_type, aggregate_id);
ALTER TABLE ONLY stead.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (name);
ALTER TABLE ONLY stead.principal_name
    ADD CONSTRAINT principal_name_pkey PRIMARY KEY (principal);
ALTER TABLE ONLY stead.projection_apps
    ADD CONSTRAINT projection_apps_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.projection_builds
    ADD CONSTRAINT projection_builds_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.projection_components
    ADD CONSTRAINT projection_components_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.projection_config_versions
    ADD CONSTRAINT projection_config_versions_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.projection_enrolments
    ADD CONSTRAINT projection_enrolments_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.projection_installs
    ADD CONSTRAINT projection_installs_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.projection_job_queue
    ADD CONSTRAINT projection_job_queue_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.projection_jobs
    ADD CONSTRAINT projection_jobs_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.projection_plugins
    ADD CONSTRAINT projection_plugins_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.projection_principals
    ADD CONSTRAINT projection_principals_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.projection_runners
    ADD CONSTRAINT projection_runners_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.projection_runs
    ADD CONSTRAINT projection_runs_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.projection_timers
    ADD CONSTRAINT projection_timers_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.projection_tokens
    ADD CONSTRAINT projection_tokens_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.projection_webhooks
    ADD CONSTRAINT projection_webhooks_pkey PRIMARY KEY (key);
ALTER TABLE ONLY stead.runner_journal
    ADD CONSTRAINT runner_journal_pkey PRIMARY KEY (runner, journal_id);
ALTER TABLE ONLY stead.runner_session
    ADD CONSTRAINT runner_session_pkey PRIMARY KEY (runner);
ALTER TABLE ONLY stead.sensitive_value
    ADD CONSTRAINT sensitive_value_pkey PRIMARY KEY (install, id);
ALTER TABLE ONLY stead.state_fence
    ADD CONSTRAINT state_fence_pkey PRIMARY KEY (install, component);
ALTER TABLE ONLY stead.state_version
    ADD CONSTRAINT state_version_pkey PRIMARY KEY (install, component, number);
ALTER TABLE ONLY stead.subject_data
    ADD CONSTRAINT subject_data_execution_key UNIQUE (execution);
ALTER TABLE ONLY stead.subject_data
    ADD CONSTRAINT subject_data_pkey PRIMARY KEY (subject, digest);
ALTER TABLE ONLY stead.subject_key
    ADD CONSTRAINT subject_key_pkey PRIMARY KEY (subject);
ALTER TABLE ONLY stead.ui_session
    ADD CONSTRAINT ui_session_pkey PRIMARY KEY (secret_sha256);
ALTER TABLE ONLY stead.upload_charge
    ADD CONSTRAINT upload_charge_pkey PRIMARY KEY (holder);
ALTER TABLE ONLY stead.webhook_delivery
    ADD CONSTRAINT webhook_delivery_pkey PRIMARY KEY (webhook, "position");
ALTER TABLE ONLY stead.webhook_endpoint
    ADD CONSTRAINT webhook_endpoint_pkey PRIMARY KEY (id);
ALTER TABLE ONLY stead.wrapped_seed
    ADD CONSTRAINT wrapped_seed_pkey PRIMARY KEY (install, runner, recipient);
CREATE INDEX blob_subject ON stead.blob USING btree (subject) WHERE (subject IS NOT NULL);
CREATE INDEX blob_upload_created_at ON stead.blob_upload USING btree (created_at);
CREATE INDEX blob_upload_runner ON stead.blob_upload USING btree (runner);
CREATE INDEX log_command_expires ON stead.log_command USING brin (expires_at);
CREATE INDEX projection_apps_name ON stead.projection_apps USING btree (name);
CREATE INDEX projection_builds_app ON stead.projection_builds USING btree (app, key);
CREATE INDEX projection_builds_component ON stead.projection_builds USING btree (component, source);
CREATE INDEX projection_builds_state ON stead.projection_builds USING btree (state, key);
CREATE INDEX projection_components_app ON stead.projection_components USING btree (app, name);
CREATE INDEX projection_config_versions_app ON stead.projection_config_versions USING btree (app, config_version);
CREATE INDEX projection_enrolments_install ON stead.projection_enrolments USING btree (install);
CREATE INDEX projection_enrolments_sha256 ON stead.projection_enrolments USING btree (sha256);
CREATE INDEX projection_installs_app ON stead.projection_installs USING btree (app, key);
CREATE INDEX projection_installs_name ON stead.projection_installs USING btree (name);
CREATE INDEX projection_installs_state ON stead.projection_installs USING btree (state, key);
CREATE INDEX projection_job_queue_waiting ON stead.projection_job_queue USING btree (target, "position") WHERE waiting;
CREATE INDEX projection_jobs_build ON stead.projection_jobs USING btree (build, key);
CREATE INDEX projection_jobs_install ON stead.projection_jobs USING btree (install, key);
CREATE INDEX projection_jobs_open ON stead.projection_jobs USING btree (key) WHERE (NOT finished);
CREATE INDEX projection_jobs_run ON stead.projection_jobs USING btree (run, key);
CREATE INDEX projection_jobs_runner ON stead.projection_jobs USING btree (runner, key) WHERE (NOT finished);
CREATE INDEX projection_jobs_state ON stead.projection_jobs USING btree (state, key);
CREATE INDEX projection_runners_build ON stead.projection_runners USING btree (key) WHERE (mode = 'build'::text);
CREATE INDEX projection_runners_install ON stead.projection_runners USING btree (install);
CREATE INDEX projection_runners_state ON stead.projection_runners USING btree (state);
CREATE INDEX projection_runs_drift ON stead.projection_runs USING btree (key) WHERE drift;
CREATE INDEX projection_runs_install ON stead.projection_runs USING btree (install, key);
CREATE INDEX projection_runs_open ON stead.projection_runs USING btree (key) WHERE (NOT finished);
CREATE INDEX projection_runs_state ON stead.projection_runs USING btree (state, key);
CREATE INDEX projection_timers_due ON stead.projection_timers USING btree (due_at) WHERE (due_at IS NOT NULL);
CREATE INDEX projection_tokens_principal ON stead.projection_tokens USING btree (principal);
CREATE INDEX projection_tokens_sha256 ON stead.projection_tokens USING btree (sha256);
CREATE INDEX projection_tokens_token ON stead.projection_tokens USING btree (token);
CREATE INDEX sensitive_value_name ON stead.sensitive_value USING btree (install, name);
CREATE INDEX subject_key_fence ON stead.subject_key USING btree (fence) WHERE (fence IS NOT NULL);
CREATE INDEX subject_key_open ON stead.subject_key USING btree (shredded_at) WHERE ((shredded_at IS NOT NULL) AND (erased_at IS NULL));
CREATE INDEX ui_session_created_at ON stead.ui_session USING btree (created_at);
CREATE INDEX webhook_delivery_due ON stead.webhook_delivery USING btree (due_at) WHERE (state = 'pending'::text);
CREATE INDEX webhook_endpoint_webhook ON stead.webhook_endpoint USING btree (webhook);
ALTER INDEX stead.job_log_pkey ATTACH PARTITION stead.job_log_default_pkey;
ALTER INDEX stead.log_event_pkey ATTACH PARTITION stead.log_event_default_pkey;
GRANT USAGE ON SCHEMA stead TO stead_app;
GRANT SELECT,INSERT ON TABLE stead.blob TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.blob_upload TO stead_app;
GRANT SELECT,INSERT ON TABLE stead.erased_execution TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.job_log TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.job_log_default TO stead_app;
GRANT SELECT ON TABLE stead.log_archive TO stead_app;
GRANT SELECT,INSERT ON TABLE stead.log_checkpoint TO stead_app;
GRANT SELECT,INSERT ON TABLE stead.log_checkpoint_key TO stead_app;
GRANT UPDATE(valid_until) ON TABLE stead.log_checkpoint_key TO stead_app;
GRANT UPDATE(last_size) ON TABLE stead.log_checkpoint_key TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.log_command TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.log_consumer TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.log_dead_letter TO stead_app;
GRANT SELECT,INSERT ON TABLE stead.log_event TO stead_app;
GRANT SELECT ON TABLE stead.log_event_default TO stead_app;
GRANT SELECT,UPDATE ON TABLE stead.log_head TO stead_app;
GRANT SELECT,INSERT ON TABLE stead.log_node TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.log_snapshot TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.log_stream TO stead_app;
GRANT SELECT ON TABLE stead.migration TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.principal_name TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.projection_apps TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.projection_builds TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.projection_components TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.projection_config_versions TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.projection_enrolments TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.projection_installs TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.projection_job_queue TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.projection_jobs TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.projection_plugins TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.projection_principals TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.projection_runners TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.projection_runs TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.projection_timers TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.projection_tokens TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.projection_webhooks TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.runner_journal TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.runner_session TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.sensitive_value TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.state_fence TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.state_version TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.subject_data TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.subject_key TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.ui_session TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.upload_charge TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.webhook_delivery TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.webhook_endpoint TO stead_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE stead.wrapped_seed TO stead_app;
