-- Webhooks with their settings.
create table projection_webhooks (
    key  text collate "C" not null primary key, -- name
    data json not null
);
-- Endpoint of a webhook. URL and signing secret are outside the log, because both can be secret. An endpoint is active
-- from its event webhook.configured until the next event of the webhook.
create table webhook_endpoint (
    id          text        collate "C" not null primary key,
    webhook     text        collate "C" not null,
    url         text        not null,
    secret      bytea       not null,
    topics      text[]      not null default '{}',
    format      text        not null default '',
    active      boolean     not null default false,
    created_at  timestamptz not null,
    replaced_at timestamptz
);
create index webhook_endpoint_webhook on webhook_endpoint (webhook);
-- Message of a webhook about the event at this position. The body is built again for each attempt, so the row contains
-- no data of the event.
create table webhook_delivery (
    webhook      text        collate "C" not null,
    position     bigint      not null,
    topic        text        collate "C" not null,
    state        text        collate "C" not null,
    attempts     integer     not null default 0,
    due_at       timestamptz not null,
    status       integer,
    error        text,
    created_at   timestamptz not null,
    delivered_at timestamptz,
    primary key (webhook, position)
);
create index webhook_delivery_due on webhook_delivery (due_at) where state = 'pending';
