//! The text of the one statement. A batch sends only the parts it needs: starting a part that has nothing to do
//! costs the database more than a row.
use super::{
    batch::Batch,
    placeholders::{moved, numbered, one_row},
};

/// What a parameter is, as the parts name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum Parameter {
    Position, CommitNo, Turn, Epoch, Layout, NewPosition, NewChain, RecordedAt,
    GuardKind, GuardId, GuardExpected,
    KeyPrincipal, Key, KeyRequestHash, KeyFirst, KeyLast, KeyAnswer, KeyExpiresAt,
    ProbePrincipal, ProbeKey,
    ConsumerName, ConsumerVersion, ConsumerShard, ConsumerExpected, ConsumerOwnerEpoch,
    SessionRunner, SessionServer, SessionServerEpoch,
    EventPosition, EventId, EventStreamKind, EventStreamId, EventSequence, EventType, EventVersion,
    EventPayload, EventMetadata, EventSalt, EventLeaf, EventChain,
    BegunKind, BegunId, BegunVersion, BegunLastPosition,
    GrownKind, GrownId, GrownVersion, GrownLastPosition,
    NodeLevel, NodeIndex, NodeHash,
}

#[rustfmt::skip]
pub(super) const NAMES: [(&str, Parameter); 51] = {
    use Parameter::*;
    [
        ("position", Position), ("commit_no", CommitNo), ("turn", Turn), ("epoch", Epoch), ("layout", Layout),
        ("new_position", NewPosition), ("new_chain", NewChain), ("recorded_at", RecordedAt),
        ("guard_kind", GuardKind), ("guard_id", GuardId), ("guard_expected", GuardExpected),
        ("key_principal", KeyPrincipal), ("key", Key), ("key_request_hash", KeyRequestHash),
        ("key_first", KeyFirst), ("key_last", KeyLast), ("key_answer", KeyAnswer), ("key_expires_at", KeyExpiresAt),
        ("probe_principal", ProbePrincipal), ("probe_key", ProbeKey),
        ("consumer_name", ConsumerName), ("consumer_version", ConsumerVersion), ("consumer_shard", ConsumerShard),
        ("consumer_expected", ConsumerExpected), ("consumer_owner_epoch", ConsumerOwnerEpoch),
        ("session_runner", SessionRunner), ("session_server", SessionServer),
        ("session_server_epoch", SessionServerEpoch),
        ("event_position", EventPosition), ("event_id", EventId), ("event_stream_kind", EventStreamKind),
        ("event_stream_id", EventStreamId), ("event_sequence", EventSequence), ("event_type", EventType),
        ("event_version", EventVersion), ("event_payload", EventPayload), ("event_metadata", EventMetadata),
        ("event_salt", EventSalt), ("event_leaf", EventLeaf), ("event_chain", EventChain),
        ("begun_kind", BegunKind), ("begun_id", BegunId), ("begun_version", BegunVersion),
        ("begun_last_position", BegunLastPosition),
        ("grown_kind", GrownKind), ("grown_id", GrownId), ("grown_version", GrownVersion),
        ("grown_last_position", GrownLastPosition),
        ("node_level", NodeLevel), ("node_index", NodeIndex), ("node_hash", NodeHash),
    ]
};

/// Where the commands expect streams to be; no row is version 0. A plain `on conflict do update … where` would
/// not guard the insert.
const STALE: &str = "stale as (
  select distinct w.kind, w.id, coalesce(s.version, 0) as version
    from unnest(:guard_kind::text[], :guard_id::text[], :guard_expected::bigint[]) as w(kind, id, expected)
    left join log_stream s on s.aggregate_type = w.kind and s.aggregate_id = w.id
   where coalesce(s.version, 0) <> w.expected)";

fn stale() -> String {
    #[cfg(feature = "planted")]
    if proof::planted::has(proof::planted::Bug::GuardWithoutAbsent) {
        return STALE.replace("left join", "join");
    }
    STALE.to_owned()
}

/// Idempotency keys must be absent; an expired one is.
const KNOWN: &str = "known as (
  select c.* from unnest(:key_principal::text[], :key::text[]) as u(principal, key)
    join log_command c on c.principal = u.principal and c.idempotency_key = u.key
   where c.expires_at > :recorded_at::timestamptz)";

/// Keys of commands that are known to come too late: only asked for, they keep nobody out.
const PROBED: &str = "probed as (
  select c.* from unnest(:probe_principal::text[], :probe_key::text[]) as u(principal, key)
    join log_command c on c.principal = u.principal and c.idempotency_key = u.key
   where c.expires_at > :recorded_at::timestamptz)";

/// Consumers must be where the policy thinks, and its own. Owner and position change outside an append, so the guard
/// locks them.
const CONSUMERS: &str = "held_consumer as (
  select c.name, c.version, c.shard, c.position, c.owner_epoch from log_consumer c
   where c.name = any(:consumer_name::text[]) order by c.name, c.version, c.shard LOCK),
moved_consumer as (
  select u.name, u.version, u.shard
    from unnest(:consumer_name::text[], :consumer_version::integer[], :consumer_shard::integer[],
         :consumer_expected::bigint[], :consumer_owner_epoch::bigint[])
      as u(name, version, shard, expected, owner_epoch)
    left join held_consumer h on h.name = u.name and h.version = u.version and h.shard = u.shard
   where h.position is distinct from u.expected or h.owner_epoch is distinct from u.owner_epoch)";

/// Sessions must be this server's. They too change outside an append.
const SESSIONS: &str = "held_session as (
  select r.runner, r.server, r.server_epoch from runner_session r
   where r.runner = any(:session_runner::text[]) order by r.runner LOCK),
moved_session as (
  select u.runner
    from unnest(:session_runner::text[], :session_server::text[], :session_server_epoch::bigint[])
      as u(runner, server, server_epoch)
    left join held_session h on h.runner = u.runner
   where h.server is distinct from u.server or h.server_epoch is distinct from u.server_epoch)";

/// The head moves only if all guards hold and it is where we think.
const HEAD: &str = "head as (
  update log_head h set position = :new_position, chain = :new_chain, recorded_at = :recorded_at,
         commit_no = h.commit_no + 1
    from ok where ok.yes and h.position = :position and h.commit_no = :commit_no
     and h.fence = :turn and h.epoch = :epoch and h.format = :layout
  returning h.commit_no)";

const EVENTS: &str = "event as (
  insert into log_event (position, event_id, aggregate_type, aggregate_id, sequence, event_type,
         event_version, payload, metadata, salt, leaf, chain, commit_no, recorded_at)
  select u.position, u.event_id, u.kind, u.id, u.sequence, u.event_type, u.event_version,
         u.payload::json, u.metadata::json, u.salt, u.leaf, u.chain, head.commit_no, :recorded_at
    from head, unnest(:event_position::bigint[], :event_id::uuid[], :event_stream_kind::text[],
         :event_stream_id::text[], :event_sequence::bigint[], :event_type::text[], :event_version::text[],
         :event_payload::text[], :event_metadata::text[], :event_salt::bytea[], :event_leaf::bytea[],
         :event_chain::bytea[])
      as u(position, event_id, kind, id, sequence, event_type, event_version, payload, metadata, salt,
           leaf, chain))";

const BEGUN: &str = "begun as (
  insert into log_stream (aggregate_type, aggregate_id, version, prev_version, last_position, first_position)
  select u.kind, u.id, u.version, 0, u.last_position, :position + 1
    from head, unnest(:begun_kind::text[], :begun_id::text[], :begun_version::bigint[],
         :begun_last_position::bigint[]) as u(kind, id, version, last_position))";

const GROWN: &str = "grown as (
  update log_stream s set prev_version = s.version, version = u.version, last_position = u.last_position
    from head, unnest(:grown_kind::text[], :grown_id::text[], :grown_version::bigint[],
         :grown_last_position::bigint[]) as u(kind, id, version, last_position)
   where s.aggregate_type = u.kind and s.aggregate_id = u.id)";

const COMMANDS: &str = "command as (
  insert into log_command (principal, idempotency_key, request_hash, first_position, last_position,
         response, expires_at)
  select u.principal, u.key, u.request_hash, u.first, u.last, u.answer::json, :key_expires_at
    from head, unnest(:key_principal::text[], :key::text[], :key_request_hash::bytea[],
         :key_first::bigint[], :key_last::bigint[], :key_answer::text[])
      as u(principal, key, request_hash, first, last, answer)";

/// An expired key is used again.
const AGAIN: &str = "
  on conflict (principal, idempotency_key) do update
     set request_hash = excluded.request_hash, first_position = excluded.first_position,
         last_position = excluded.last_position, response = excluded.response,
         expires_at = excluded.expires_at";

const NODES: &str = "node as (
  insert into log_node (level, index, hash)
  select u.level, u.index, u.hash
    from head, unnest(:node_level::integer[], :node_index::bigint[], :node_hash::bytea[])
      as u(level, index, hash))";

/// How a batch makes sure that streams which begin do not exist and that keys were not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Check {
    /// It asks first, and names those that are.
    Asked,
    /// It trusts, and the tables' keys refuse the whole batch if it is wrong: then ask. Most batches are right, and
    /// asking costs them a third of their time.
    Trusted,
}

/// Which parts a batch needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Parts {
    check: Check,
    /// Whether every part has one row. A list costs the database a table of its own for each of its columns, and a
    /// lone caller pays for thirty of them.
    pub single: bool,
    writes: bool,
    streams: bool,
    keys: bool,
    probes: bool,
    consumers: bool,
    sessions: bool,
    events: bool,
    begun: bool,
    grown: bool,
    nodes: bool,
}

impl Parts {
    /// `rows` is the largest number of rows that a view writes with one of its statements.
    pub(crate) fn of(batch: &Batch, check: Check, rows: usize) -> Parts {
        let begun = !batch.begun.kind.is_empty();
        let asked = if check == Check::Asked { batch.begun.kind.len() } else { 0 };
        let most = [
            rows,
            batch.guards.kind.len() + asked,
            batch.keys.key.len(),
            batch.probes.key.len(),
            batch.consumers.name.len(),
            batch.sessions.runner.len(),
            batch.events.len(),
            batch.begun.kind.len(),
            batch.grown.kind.len(),
            batch.nodes.len(),
        ];
        Parts {
            check,
            single: most.iter().all(|rows| *rows <= 1),
            writes: batch.writes,
            streams: !batch.guards.kind.is_empty() || (begun && check == Check::Asked),
            keys: !batch.keys.key.is_empty(),
            probes: !batch.probes.key.is_empty(),
            consumers: !batch.consumers.name.is_empty(),
            sessions: !batch.sessions.runner.is_empty(),
            events: !batch.events.is_empty(),
            begun,
            grown: !batch.grown.kind.is_empty(),
            nodes: !batch.nodes.is_empty(),
        }
    }

    fn asks_keys(self) -> bool {
        self.keys && self.check == Check::Asked
    }

    /// The statement, the parameters it wants in order, and how many it has before those of the views.
    pub(crate) fn text(self, rides: &[Riding<'_>]) -> (String, Vec<Parameter>) {
        let mut parts = Vec::new();
        let mut wanted = |wanted: bool, part| parts.extend(wanted.then_some(part));
        wanted(self.streams, stale());
        wanted(self.asks_keys(), KNOWN.to_owned());
        wanted(self.probes, PROBED.to_owned());
        // Nothing is written under a check's guard, so it does not lock.
        let lock = if self.writes { "for update" } else { "" };
        wanted(self.consumers, CONSUMERS.replace("LOCK", lock));
        wanted(self.sessions, SESSIONS.replace("LOCK", lock));
        if self.writes {
            wanted(true, self.ok());
            wanted(true, HEAD.to_owned());
            wanted(self.events, EVENTS.to_owned());
            wanted(self.begun, BEGUN.to_owned());
            wanted(self.grown, GROWN.to_owned());
            let again = if self.asks_keys() { AGAIN } else { "" };
            wanted(self.keys, format!("{COMMANDS}{again})"));
            wanted(self.nodes, NODES.to_owned());
        }
        let (text, parameters) = numbered(&format!("with {}", parts.join(",\n")));
        let (mut text, mut offset) = (text, parameters.len());
        for (number, ride) in rides.iter().enumerate() {
            for (of, statement) in ride.statements.iter().enumerate() {
                let statement = moved(statement, offset);
                text.push_str(&format!(",\nride_{number}_{of} as ({statement})"));
            }
            // Statements of one view share its parameters.
            offset += ride.parameters;
        }
        text.push_str(&self.answer());
        if self.single {
            text = one_row(&text);
        }
        (text, parameters)
    }

    fn ok(self) -> String {
        let guards = [
            (self.streams, "stale"),
            (self.asks_keys(), "known"),
            (self.consumers, "moved_consumer"),
            (self.sessions, "moved_session"),
        ];
        let guards = guards.iter().filter(|(used, _)| *used);
        let hold: Vec<_> =
            guards.map(|(_, name)| format!("not exists (select 1 from {name})")).collect();
        let hold = if hold.is_empty() { "true".to_owned() } else { hold.join(" and ") };
        format!("ok as (select {hold} as yes)")
    }

    fn answer(self) -> String {
        let list = |used: bool, name: &str, select: &str| {
            let select = if used { format!("({select})::text") } else { "null::text".into() };
            format!("{select} as {name}")
        };
        let used = match (self.asks_keys(), self.probes) {
            (true, true) => "(select * from known union all select * from probed) as used",
            (true, false) => "known",
            (false, _) => "probed",
        };
        let known = format!(
            "select json_agg(json_build_object('principal', principal, 'key', idempotency_key, \
             'request_hash', encode(request_hash, 'hex'), 'first', first_position, \
             'last', last_position, 'answer', response)) from {used}"
        );
        let stale = "select json_agg(json_build_array(kind, id, version)) from stale";
        let consumers =
            "select json_agg(json_build_array(name, version, shard)) from moved_consumer";
        let sessions = "select json_agg(runner) from moved_session";
        let answers = [
            // A check that writes nothing always "moves": it is its guards that count.
            if self.writes { "(select count(*) from head) as moved" } else { "1::bigint as moved" }
                .to_owned(),
            list(self.streams, "stale", stale),
            list(self.asks_keys() || self.probes, "known", &known),
            list(self.consumers, "consumers", consumers),
            list(self.sessions, "sessions", sessions),
        ];
        format!("\nselect {}", answers.join(",\n"))
    }
}

/// What a view writes with a batch.
pub(crate) struct Riding<'a> {
    /// Those of its statements that have rows.
    pub statements: Vec<&'a str>,
    /// How many parameters all of its statements have.
    pub parameters: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_in_the_statement_is_a_parameter() {
        let all = Parts {
            check: Check::Asked,
            single: false,
            writes: true,
            streams: true,
            keys: true,
            probes: true,
            consumers: true,
            sessions: true,
            events: true,
            begun: true,
            grown: true,
            nodes: true,
        };
        let (sql, parameters) = all.text(&[]);
        assert_eq!(parameters.len(), NAMES.len());
        assert!(!sql.replace("::", "").contains(':'), "{sql}");
    }
}
