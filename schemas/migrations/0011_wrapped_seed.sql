-- Seed of an install's keys, wrapped for a recovery recipient of the customer. The server cannot read it. A new host
-- recovers the keys from it.
create table wrapped_seed (
    install    text        collate "C" not null,
    runner     text        collate "C" not null,
    recipient  text        collate "C" not null,
    generation bigint      not null,
    wrapped    text        not null,
    stored_at  timestamptz not null,
    primary key (install, runner, recipient)
);
