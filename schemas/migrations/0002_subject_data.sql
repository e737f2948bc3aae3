-- Data about a subject that an event references by a digest of its plaintext, such as the details of a plan. Encrypted
-- with the subject's key, so the deletion of the key makes it unreadable. An execution has at most one row.
create table subject_data (
    subject    text        collate "C" not null,
    digest     text        collate "C" not null,
    execution  text        collate "C" not null unique,
    ciphertext bytea       not null,
    created_at timestamptz not null,
    primary key (subject, digest)
);
