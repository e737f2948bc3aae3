//! Small in-memory log, and the bundles that an honest server makes of it.
#![allow(clippy::unwrap_used, dead_code, reason = "shared by several test modules")]

use ed25519_dalek::SigningKey;
use proof::{
    Hash,
    bundle::{Base64, Bundle, Content, Event, FORMAT, OtherEntries, Since, Subject},
    chain,
    checkpoint::Checkpoint,
    key::VerifierKey,
    leaf::Leaf,
    range,
    tree::{self, Edge, Node, ProofPlan},
};

pub const LOG: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

pub struct Log {
    pub events: Vec<Event>,
}

pub fn key() -> SigningKey {
    SigningKey::from_bytes(&[7; 32])
}

pub fn signer(key: &SigningKey) -> VerifierKey {
    VerifierKey { name: format!("stead/{LOG}"), key: key.verifying_key() }
}

impl Log {
    /// Returns a log with one event per entry of `streams`, with the next sequence of its stream.
    pub fn of(streams: &[&str]) -> Log {
        let mut log = Log { events: Vec::new() };
        for stream in streams {
            let next = log.events.iter().filter(|e| name(e) == *stream).count() as u64 + 1;
            log.push(stream, next);
        }
        log
    }

    pub fn push(&mut self, stream: &str, sequence: u64) {
        let position = self.events.len() as u64 + 1;
        let (aggregate_type, aggregate_id) = stream.split_once('/').unwrap();
        self.events.push(Event {
            position,
            event_id: format!("evt_{}", ulid::Ulid::from_parts(position, 5)),
            aggregate_type: aggregate_type.into(),
            aggregate_id: aggregate_id.into(),
            sequence,
            event_type: format!("{aggregate_type}.changed"),
            version: 1,
            recorded_at_us: 1_700_000_000_000_000 + position as i64,
            content: Content::Open {
                salt: Base64([position as u8; 16]),
                payload: format!("{{\"type\":\"changed\",\"to\":\"ä \\\" {position}\"}}"),
                metadata: "{\"actor\":\"system\"}".into(),
            },
            inclusion: Vec::new(),
        });
    }

    pub fn size(&self) -> u64 {
        self.events.len() as u64
    }

    pub fn leaf(&self, position: u64) -> Leaf<'_> {
        self.events[position as usize - 1].leaf().unwrap()
    }

    pub fn edge(&self, size: u64) -> Edge {
        let mut edge = Edge::default();
        for position in 1..=size {
            edge.push(self.leaf(position).hash(), |_, _| {});
        }
        edge
    }

    pub fn checkpoint(&self, size: u64) -> Checkpoint {
        Checkpoint { log_id: LOG.into(), size, root: self.edge(size).root(), epoch: 1 }
    }

    fn node(&self, node: Node) -> Hash {
        let first = node.index << node.level;
        let leaves: Vec<_> =
            (first..first + (1 << node.level)).map(|at| self.leaf(at + 1).hash()).collect();
        tree::perfect(&leaves).unwrap()
    }

    pub fn fold(&self, plan: &ProofPlan) -> Vec<Base64<Hash>> {
        let hashes: Vec<_> = plan.nodes().map(|node| self.node(node)).collect();
        plan.fold(&hashes).unwrap().into_iter().map(Base64).collect()
    }

    fn before(&self, from: u64) -> Vec<Base64<Hash>> {
        Edge::nodes(from - 1).into_iter().map(|node| Base64(self.node(node))).collect()
    }

    fn proven(&self, position: u64) -> Event {
        let plan = tree::inclusion(position - 1, self.size()).unwrap();
        Event { inclusion: self.fold(&plan), ..self.events[position as usize - 1].clone() }
    }

    pub fn since(&self, size: u64) -> Since {
        Since {
            signer: signer(&key()).to_string(),
            checkpoint: self.checkpoint(size).sign(&key()),
            consistency: self.fold(&tree::consistency(size, self.size()).unwrap()),
        }
    }

    pub fn others(&self, subject: &Subject, from: u64) -> OtherEntries {
        let is_of = |name: String| match subject {
            Subject::Position(_) => false,
            Subject::Stream(stream) => *stream == name,
            Subject::Streams(streams) => streams.contains(&name),
        };
        let positions =
            (from..=self.size()).filter(|at| !is_of(name(&self.events[*at as usize - 1])));
        let entries = positions.map(|at| Base64(self.leaf(at).canonical())).collect();
        OtherEntries { from, edge: self.before(from), entries }
    }

    pub fn bundle(&self, subject: Subject, since: Option<u64>, from: Option<u64>) -> Bundle {
        let of = |event: &&Event| match &subject {
            Subject::Position(position) => event.position == *position,
            Subject::Stream(stream) => name(event) == *stream,
            Subject::Streams(streams) => streams.contains(&name(event)),
        };
        let events = self.events.iter().filter(of).map(|e| self.proven(e.position)).collect();
        let others = from.map(|from| self.others(&subject, from));
        Bundle {
            format: FORMAT.into(),
            subject,
            signer: signer(&key()).to_string(),
            checkpoint: self.checkpoint(self.size()).sign(&key()),
            since: since.map(|size| self.since(size)),
            annotations: None,
            events,
            others,
        }
    }

    /// Returns the position of a stream's last event.
    pub fn last(&self, stream: &str) -> u64 {
        self.events.iter().rfind(|e| name(e) == stream).map_or(0, |e| e.position)
    }

    pub fn head(&self, from: u64, to: u64) -> range::Head {
        let link = (1..from)
            .fold(chain::genesis(LOG), |link, at| chain::next(&link, &self.leaf(at).hash()));
        range::Head {
            format: range::FORMAT.into(),
            from,
            to,
            signer: signer(&key()).to_string(),
            checkpoint: self.checkpoint(self.size()).sign(&key()),
            edge: self.before(from),
            consistency: self.fold(&tree::consistency(to, self.size()).unwrap()),
            chain: Base64(link),
        }
    }
}

pub fn name(event: &Event) -> String {
    format!("{}/{}", event.aggregate_type, event.aggregate_id)
}
