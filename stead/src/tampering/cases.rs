//! Rows of the tampering table in `docs/security.md`: a change, and its meaning.

pub(super) enum Tampering {
    Sql(&'static str),
    /// Restore of a dump that `pg_dump` wrote at position 9.
    OldBackup {
        published: Published,
    },
    /// Restore of a dump from position 5. Then Stead's own code appends other events, until the log
    /// has its former length.
    Rewritten {
        published: Published,
    },
    /// One more event, appended with Stead's own code.
    Invented,
    /// The runner's report at position 9 is changed and keeps its old signature. All hashes are
    /// computed again, and all checkpoints are signed again with the server's key.
    ReportChanged,
    /// One more job with a forged report of its runner, appended with Stead's own code.
    ReportInvented {
        /// Fields that are missing in the forged report, which another key has signed.
        missing_fields: &'static [&'static str],
    },
}

/// Published checkpoints after the change. The key that signs them is not in the database.
pub(super) enum Published {
    PutBack,
    Removed,
}

pub(super) struct Case {
    pub what: &'static str,
    pub tampering: Tampering,
    pub means: &'static str,
}

const fn case(what: &'static str, tampering: Tampering, means: &'static str) -> Case {
    Case { what, tampering, means }
}

pub(super) const CASES: [Case; 19] = [
    case(
        "a byte of a payload is flipped",
        Tampering::Sql("update log_event set payload = '{\"n\":77}' where position = 7"),
        "the event was changed",
    ),
    case(
        "a time, an actor, a type or a stream is changed",
        Tampering::Sql(
            "update log_event set metadata = '{\"actor\":\"prn_other\"}' where position = 7",
        ),
        "the event was changed",
    ),
    case(
        "a row is deleted",
        Tampering::Sql("delete from log_event where position = 7"),
        "a recorded event is missing",
    ),
    case(
        "a row is inserted, and the rows after it move",
        Tampering::Sql(
            "update log_event set position = -position where position > 6; \
             insert into log_event select 7, gen_random_uuid(), aggregate_type, 'x', 1, event_type, event_version, \
               payload, metadata, salt, leaf, chain, commit_no, recorded_at from log_event where position = 6; \
             update log_event set position = 1 - position where position < 0; \
             update log_head set position = position + 1",
        ),
        "an event was inserted later",
    ),
    case(
        "a row is added at the end",
        Tampering::Sql(
            "insert into log_event select 13, gen_random_uuid(), aggregate_type, 'x', 1, event_type, event_version, \
             payload, metadata, salt, leaf, chain, commit_no + 1, recorded_at from log_event where position = 12",
        ),
        "no server wrote the event: it is after the head",
    ),
    case(
        "two rows are swapped",
        Tampering::Sql(
            "update log_event set position = -1 where position = 7; \
             update log_event set position = 7 where position = 8; \
             update log_event set position = 8 where position = -1",
        ),
        "the order of the events was changed",
    ),
    case(
        "the last rows are deleted",
        Tampering::Sql("delete from log_event where position > 9"),
        "the newest events are missing; the head still includes them",
    ),
    case(
        "the last rows are deleted, and head and streams are reset",
        Tampering::Sql(
            "delete from log_event where position > 9; \
             delete from log_stream where last_position > 9; \
             update log_head h set position = 9, chain = e.chain, commit_no = e.commit_no \
               from log_event e where e.position = 9",
        ),
        "the newest events are missing; a checkpoint covers them",
    ),
    case(
        "a stream's version is changed",
        Tampering::Sql("update log_stream set last_position = 5000 where aggregate_id = 's2'"),
        "commands to that stream would fail, or use an incomplete state",
    ),
    case(
        "a published checkpoint is changed",
        Tampering::Sql(
            "update log_checkpoint set note = replace(note, E'\\n6\\n', E'\\n7\\n') where position = 6",
        ),
        "no key of the server signed it",
    ),
    case(
        "history is rewritten, and every hash is computed again",
        Tampering::Rewritten { published: Published::PutBack },
        "the log does not match the published checkpoints",
    ),
    case(
        "history is rewritten with new hashes, and the published checkpoints are removed",
        Tampering::Rewritten { published: Published::Removed },
        "the log is consistent, but differs from the log that other parties saw",
    ),
    case(
        "an old backup is restored",
        Tampering::OldBackup { published: Published::Removed },
        "later events are missing; the database alone cannot show the loss",
    ),
    case(
        "an old backup is restored, with the current published checkpoints",
        Tampering::OldBackup { published: Published::PutBack },
        "later events are missing; a checkpoint covers them",
    ),
    case(
        "a runner's report is changed; every hash is computed again, every checkpoint signed again",
        Tampering::ReportChanged,
        "a party with the database and the keys of the vendor wrote it; the runner signed another report",
    ),
    case(
        "a runner's report is forged and signed with another key",
        Tampering::ReportInvented { missing_fields: &[] },
        "the runner did not send this report",
    ),
    case(
        "a runner's report is forged and not signed",
        Tampering::ReportInvented { missing_fields: &["signed"] },
        "no signature proves that the runner sent the report; only the server vouches for it",
    ),
    case(
        "a job's result is forged as a resolution",
        Tampering::ReportInvented { missing_fields: &["signed", "seq"] },
        "a server writes a result only after a report or a resolution",
    ),
    case(
        "an event is added in the same way as by a server",
        Tampering::Invented,
        "the log proves what was recorded, not that it is true; the runner's own journal contains its actions",
    ),
];
