-- Sensitive value of an install: an input, or an output of a component. Events and manifests contain only
-- `encrypted:<id>`. The server cannot decrypt the ciphertext, which is null for a value that stays on the customer's host.
create table sensitive_value (
    install    text        collate "C" not null,
    id         text        collate "C" not null,
    name       text        collate "C" not null,
    consumers  jsonb       not null,
    signed     boolean     not null,
    json       boolean     not null,
    ciphertext bytea,
    created_at timestamptz not null,
    primary key (install, id)
);
create index sensitive_value_name on sensitive_value (install, name);
