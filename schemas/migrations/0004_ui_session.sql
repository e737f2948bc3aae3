-- Sessions of the dashboard. The browser has the secret of a session, and the row its SHA-256.
create table ui_session (
    secret_sha256 bytea       primary key,
    principal     text        collate "C" not null,
    token         text        collate "C" not null,
    created_at    timestamptz not null,
    used_at       timestamptz not null
);
create index ui_session_created_at on ui_session (created_at);
