//! The rows: what is done, and what it means.

/// How it is done.
pub(super) enum How {
    /// By statements.
    Sql(&'static str),
    /// As `psql` puts back what `pg_dump` wrote at position 9.
    OldBackup { published: Published },
    /// The same, and then other events as our own program writes them, until the log is as long as before.
    Rewritten { published: Published },
    /// One more event, as our own program writes it.
    Invented,
    /// The end that a runner reported at 9 becomes another, under its old signature: all hashes computed anew, all
    /// checkpoints signed anew with the key of the server.
    ReportChanged,
    /// One more job whose runner is said to have done it, as our own program writes it.
    ReportInvented {
        /// What somebody, who is not the runner and signs it, then takes out of it.
        lacks: &'static [&'static str],
    },
}

/// What becomes of the published checkpoints, which are signed by a key that is not in the database.
pub(super) enum Published {
    PutBack,
    Removed,
}

/// One row.
pub(super) struct Case {
    pub what: &'static str,
    pub how: How,
    pub means: &'static str,
}

const fn case(what: &'static str, how: How, means: &'static str) -> Case {
    Case { what, how, means }
}

pub(super) const CASES: [Case; 19] = [
    case(
        "a byte of a payload is flipped",
        How::Sql("update log_event set payload = '{\"n\":77}' where position = 7"),
        "that event is not what was recorded",
    ),
    case(
        "a time, an actor, a type or a stream is changed",
        How::Sql("update log_event set metadata = '{\"actor\":\"prn_other\"}' where position = 7"),
        "the same",
    ),
    case(
        "a row is deleted",
        How::Sql("delete from log_event where position = 7"),
        "something that was recorded is gone",
    ),
    case(
        "a row is inserted, and those after it move",
        How::Sql(
            "update log_event set position = -position where position > 6; \
             insert into log_event select 7, gen_random_uuid(), aggregate_type, 'x', 1, event_type, event_version, \
               payload, metadata, salt, leaf, chain, commit_no, recorded_at from log_event where position = 6; \
             update log_event set position = 1 - position where position < 0; \
             update log_head set position = position + 1",
        ),
        "something was put in that was not recorded then",
    ),
    case(
        "a row is added after the last",
        How::Sql(
            "insert into log_event select 13, gen_random_uuid(), aggregate_type, 'x', 1, event_type, event_version, \
             payload, metadata, salt, leaf, chain, commit_no + 1, recorded_at from log_event where position = 12",
        ),
        "no server wrote it: the head does not count it",
    ),
    case(
        "two rows are swapped",
        How::Sql(
            "update log_event set position = -1 where position = 7; \
             update log_event set position = 7 where position = 8; \
             update log_event set position = 8 where position = -1",
        ),
        "the order is not the one in which it happened",
    ),
    case(
        "the tail is cut off",
        How::Sql("delete from log_event where position > 9"),
        "the newest events are gone, the head still counts them",
    ),
    case(
        "the tail is cut off, and head and streams are set back",
        How::Sql(
            "delete from log_event where position > 9; \
             delete from log_stream where last_position > 9; \
             update log_head h set position = 9, chain = e.chain, commit_no = e.commit_no \
               from log_event e where e.position = 9",
        ),
        "the newest events are gone; a checkpoint promised more",
    ),
    case(
        "a stream's version is changed",
        How::Sql("update log_stream set last_position = 5000 where aggregate_id = 's2'"),
        "commands to that stream would be refused, or decided on half of it",
    ),
    case(
        "a published checkpoint is changed",
        How::Sql(
            "update log_checkpoint set note = replace(note, E'\\n6\\n', E'\\n7\\n') where position = 6",
        ),
        "nobody of ours signed that",
    ),
    case(
        "history is rewritten, with every hash computed anew",
        How::Rewritten { published: Published::PutBack },
        "what is published does not fit what is there",
    ),
    case(
        "the same, and the published checkpoints are removed",
        How::Rewritten { published: Published::Removed },
        "the log is whole in itself, and is not the one that others saw",
    ),
    case(
        "an old backup is put in its place",
        How::OldBackup { published: Published::Removed },
        "what came after it is gone; nothing in the database can tell",
    ),
    case(
        "the same, and the published checkpoints are those of today",
        How::OldBackup { published: Published::PutBack },
        "what came after it is gone, and was promised",
    ),
    case(
        "a runner's report is changed; every hash is computed anew, every checkpoint signed anew",
        How::ReportChanged,
        "whoever has database and keys of the vendor wrote it; the runner signed something else",
    ),
    case(
        "a runner's report is invented and signed by another",
        How::ReportInvented { lacks: &[] },
        "the runner never said so",
    ),
    case(
        "a runner's report is invented and not signed",
        How::ReportInvented { lacks: &["signed"] },
        "nobody can show that the runner said so: it is the server's word alone",
    ),
    case(
        "a job's end is invented, as if somebody had decided it",
        How::ReportInvented { lacks: &["signed", "seq"] },
        "no server writes an end that neither a runner reported nor anybody decided",
    ),
    case(
        "an event is added as a server adds it",
        How::Invented,
        "the log proves what was recorded, not that it is true; what a runner did is in its own journal",
    ),
];
