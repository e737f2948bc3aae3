//! Copies of installs' data that events of the log reference. The events are read from the log and
//! its archives, because a projection may lag. An unreadable archive is skipped, so copies that
//! only its events reference stay unknown.
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use domain::{
    decider::Decider as _, digest::Digest, ids::InstallId, install::Install, job::Origin,
};
use event_log::{LogError, StoredEvent};
use serde::Deserialize;

use crate::{problem::Problem, state::App};

/// Number of events per read.
const PAGE: u32 = 2_000;

/// Copies of the data of some installs, as referenced by events of the log.
#[derive(Default)]
pub(super) struct Copies {
    installs: BTreeMap<InstallId, References>,
    /// Aggregate type and install of each stream that is about one of these installs, by aggregate
    /// id.
    streams: HashMap<String, (String, InstallId)>,
    /// Plan summaries of all other jobs. Equal summaries share one blob, which then also belongs to
    /// another install.
    others: HashSet<[u8; 32]>,
    /// Last position that was read.
    at: u64,
    missing: Vec<Missing>,
}

/// Copies of one install's data that events of the log reference.
#[derive(Default)]
struct References {
    executions: BTreeSet<String>,
    manifests: BTreeSet<String>,
    summaries: HashSet<[u8; 32]>,
}

/// Archive that could not be read.
pub(super) struct Missing {
    /// Last position of the archive.
    pub(super) last: u64,
    /// Error message with its remedy.
    pub(super) why: String,
}

impl Copies {
    pub(super) async fn of(app: &App, installs: &[InstallId]) -> Result<Copies, Problem> {
        let mut copies = Copies::default();
        for &install in installs {
            copies.installs.insert(install, References::default());
            copies.add_stream((Install::NAME, &install.to_string()), Some(install));
        }
        copies.read_new_events(app).await?;
        Ok(copies)
    }

    /// Reads the events that were appended since the last call.
    pub(super) async fn read_new_events(&mut self, app: &App) -> Result<(), Problem> {
        let to = app.log().current_position().await?;
        if self.installs.is_empty() {
            return Ok(());
        }
        while self.at < to {
            let page = match app.log().read(self.at, PAGE).await {
                Err(LogError::Archived { first, .. }) if first > self.at + 1 => {
                    self.read_archives_before(app, first).await?
                }
                Err(error @ LogError::Archived { last, .. }) => {
                    self.missing.push(Missing { last, why: error.to_string() });
                    self.at = last;
                    continue;
                }
                page => page?,
            };
            let Some(last) = page.last() else { break };
            self.at = last.position;
            page.iter().for_each(|event| self.add_event(event));
        }
        Ok(())
    }

    /// Reads a page of archived events before the unreadable archive that begins at `first`.
    async fn read_archives_before(
        &self,
        app: &App,
        first: u64,
    ) -> Result<Vec<StoredEvent>, Problem> {
        let mut connection = app.pool.acquire().await?;
        let range = (self.at, first - 1);
        let page = app.log().archives().events(&mut connection, range, PAGE).await?;
        Ok(page.into_iter().map(std::sync::Arc::unwrap_or_clone).collect())
    }

    pub(super) fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// Last position of the newest archive that could not be read. `None` if every archive was
    /// read.
    pub(super) fn missing_until(&self) -> Option<u64> {
        self.missing.iter().map(|missing| missing.last).max()
    }

    /// Returns the installs whose copies are known, or only `of`.
    pub(super) fn installs(&self, of: Option<InstallId>) -> Vec<InstallId> {
        of.map_or_else(|| self.installs.keys().copied().collect(), |of| vec![of])
    }

    /// Aggregate type and id of the streams that are about these installs.
    pub(super) fn streams(&self, of: &[InstallId]) -> Vec<(String, String)> {
        let meant = self.streams.iter().filter(|(_, (_, install))| of.contains(install));
        meant.map(|(id, (kind, _))| (kind.clone(), id.clone())).collect()
    }

    pub(super) fn manifests(&self) -> Vec<String> {
        self.installs.values().flat_map(|references| &references.manifests).cloned().collect()
    }

    pub(super) fn executions(&self, of: Option<InstallId>) -> Vec<String> {
        let references = self.references(of).flat_map(|references| &references.executions);
        references.cloned().collect()
    }

    /// Digests of manifests and plan summaries, except those that other installs' jobs also use.
    pub(super) fn digests(&self, of: Option<InstallId>) -> Vec<String> {
        let own = |references: &References| {
            let own = references.summaries.iter().filter(|summary| !self.others.contains(*summary));
            own.map(proof::digest_text).collect::<Vec<_>>()
        };
        let references = self
            .references(of)
            .flat_map(|references| references.manifests.iter().cloned().chain(own(references)));
        references.collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn references(&self, of: Option<InstallId>) -> impl Iterator<Item = &References> {
        let is_meant = move |install: &InstallId| of.is_none_or(|of| of == *install);
        let references = self.installs.iter().filter(move |(install, _)| is_meant(install));
        references.map(|(_, references)| references)
    }

    /// Returns the install that a stream is about: the stream of the install, or of its run, job,
    /// runner or enrolment.
    pub(super) fn install_of(&self, stream: &str) -> Option<InstallId> {
        self.streams.get(stream).map(|(_, install)| *install)
    }

    fn add_event(&mut self, event: &StoredEvent) {
        let id = &event.stream.aggregate_id;
        let stream = (event.stream.aggregate_type.as_str(), id.as_str());
        let known = self.install_of(id);
        match &*event.event_type {
            "run.requested" | "runner.enrolled" => {
                self.add_stream(stream, plain_fields(event).install)
            }
            "enrolment.issued" => {
                let purpose = plain_fields(event).purpose;
                self.add_stream(stream, purpose.and_then(|purpose| purpose.install));
            }
            "job.queued" => {
                let fields = plain_fields(event);
                let of_step = |origin: Origin| match origin {
                    Origin::Preflight { install, .. } | Origin::Step { install, .. } => {
                        Some(install)
                    }
                    Origin::Build { .. } | Origin::Source { .. } => None,
                };
                let install = fields.origin.and_then(of_step);
                self.add_stream(stream, install);
                if let Some(references) =
                    install.and_then(|install| self.installs.get_mut(&install))
                {
                    references.manifests.extend(fields.manifest.map(|digest| digest.to_string()));
                }
            }
            "job.claimed" => {
                if let Some(references) = known.and_then(|install| self.installs.get_mut(&install))
                {
                    references.executions.extend(plain_fields(event).execution);
                }
            }
            "job.plan_produced" => {
                let summary = plain_fields(event).plan.and_then(|plan| plan.summary);
                let Some(summary) = summary.map(|summary| summary.bytes()) else { return };
                match known.and_then(|install| self.installs.get_mut(&install)) {
                    Some(references) => drop(references.summaries.insert(summary)),
                    None => drop(self.others.insert(summary)),
                }
            }
            _ => {}
        }
    }

    fn add_stream(&mut self, (kind, id): (&str, &str), install: Option<InstallId>) {
        let ours = install.filter(|install| self.installs.contains_key(install));
        self.streams.extend(ours.map(|install| (id.to_owned(), (kind.to_owned(), install))));
    }
}

/// Fields of events without personal data, which are read without decryption.
#[derive(Default, Deserialize)]
struct PlainFields {
    execution: Option<String>,
    manifest: Option<Digest>,
    plan: Option<Plan>,
    origin: Option<Origin>,
    install: Option<InstallId>,
    purpose: Option<Purpose>,
}

#[derive(Deserialize)]
struct Purpose {
    install: Option<InstallId>,
}

#[derive(Deserialize)]
struct Plan {
    summary: Option<Digest>,
}

fn plain_fields(event: &StoredEvent) -> PlainFields {
    serde_json::from_str(&event.payload).unwrap_or_default()
}
