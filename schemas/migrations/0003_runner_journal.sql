-- The newest signed head of each journal that a runner has told: kept here, it shows the customer whether the journal's
-- end was cut off. Not derived from events: losing it loses that, and nothing else.
create table runner_journal (
    runner     text        collate "C" not null,
    journal_id text        collate "C" not null,
    entries    bigint      not null,
    head       json        not null, -- a DSSE envelope, signed by the runner
    told_at    timestamptz not null,
    primary key (runner, journal_id)
) with (fillfactor = 70);
