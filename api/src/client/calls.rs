//! Every call by name.
use bytes::Bytes;
use domain::{
    digest::Digest,
    ids::{BuildId, JobId, PrincipalId, RunId, RunnerId, StepId, TokenId},
    subject::SubjectId,
};
use proof::bundle::MEDIA_TYPE;
use reqwest::{Method, Response};
use schemas::control::{
    Done, Listing, Page, ReasonBody, apps, audit, builds, bundles, history, installs, jobs,
    projections, runners, runs, subjects, tokens,
};
use serde_json::{Value, json};

use super::{Client, ClientError};

/// Of a bundle on its way.
const BUNDLE: &str = "application/zstd";
/// What a follower accepts.
const EVENT_STREAM: &str = "text/event-stream";
/// What an export accepts.
const NDJSON: &str = "application/x-ndjson";

type Said<A> = Result<A, ClientError>;

impl Client {
    /// Who the token belongs to, and how far the log is.
    pub async fn whoami(&self) -> Said<tokens::Whoami> {
        self.get("/v1/whoami", &()).await
    }

    /// Publish a bundle as the next config version of an app.
    pub async fn sync(&self, app: &str, bundle: Bytes, dry_run: bool) -> Said<apps::Synced> {
        let query = apps::SyncQuery { dry_run, against: None };
        self.upload(&format!("/v1/apps/{app}/sync"), &query, BUNDLE, bundle).await
    }

    /// What is kept of a subject.
    pub async fn subject(&self, subject: SubjectId) -> Said<subjects::Subject> {
        self.get(&format!("/v1/subjects/{subject}"), &()).await
    }

    /// Make what is kept of a subject unreadable, for ever.
    pub async fn shred(&self, subject: SubjectId, why: &ReasonBody) -> Said<Done> {
        self.change(Method::POST, &format!("/v1/subjects/{subject}/shred"), why).await
    }

    /// What a bundle would change against a published version, or the newest.
    pub async fn sync_against(
        &self,
        app: &str,
        bundle: Bytes,
        against: Option<u32>,
    ) -> Said<apps::Synced> {
        let query = apps::SyncQuery { dry_run: true, against };
        self.upload(&format!("/v1/apps/{app}/sync"), &query, BUNDLE, bundle).await
    }

    /// One config version, with everything that its directory says.
    pub async fn version(&self, app: &str, version: u32) -> Said<apps::ConfigVersionDetail> {
        self.fresh(&format!("/v1/apps/{app}/versions/{version}"), &()).await
    }

    /// All apps.
    pub async fn apps(&self, listing: &Listing) -> Said<Page<apps::App>> {
        self.fresh("/v1/apps", listing).await
    }

    /// One app, by name or id.
    pub async fn app(&self, app: &str) -> Said<apps::App> {
        self.fresh(&format!("/v1/apps/{app}"), &()).await
    }

    /// The config versions of an app, the newest first.
    pub async fn versions(&self, app: &str, part: &Listing) -> Said<Page<apps::ConfigVersion>> {
        self.fresh(&format!("/v1/apps/{app}/versions"), part).await
    }

    /// What differs between two config versions.
    pub async fn diff(&self, app: &str, which: &apps::DiffQuery) -> Said<apps::Diff> {
        self.fresh(&format!("/v1/apps/{app}/diff"), which).await
    }

    /// Builds, the newest first.
    pub async fn builds(&self, which: &builds::BuildsQuery) -> Said<Page<builds::Build>> {
        self.fresh("/v1/builds", which).await
    }

    /// One build.
    pub async fn build(&self, build: BuildId) -> Said<builds::Build> {
        self.fresh(&format!("/v1/builds/{build}"), &()).await
    }

    /// Build again what failed in the newest config version.
    pub async fn retry_build(&self, build: BuildId) -> Said<builds::BuildsRetried> {
        self.change(Method::POST, &format!("/v1/builds/{build}/retry"), &json!({})).await
    }

    /// Make an install.
    pub async fn create_install(
        &self,
        ask: &installs::CreateInstall,
    ) -> Said<installs::InstallCreated> {
        self.change(Method::POST, "/v1/installs", ask).await
    }

    /// Installs, by name.
    pub async fn installs(&self, which: &installs::InstallsQuery) -> Said<Page<installs::Install>> {
        self.fresh("/v1/installs", which).await
    }

    /// One install, by name or id.
    pub async fn install(&self, install: &str) -> Said<installs::Install> {
        self.fresh(&format!("/v1/installs/{install}"), &()).await
    }

    /// What templates see of an install.
    pub async fn install_state(
        &self,
        install: &str,
        when: &installs::StateQuery,
    ) -> Said<installs::InstallState> {
        self.get(&format!("/v1/installs/{install}/state"), when).await
    }

    /// Change inputs, config version or approval of an install.
    pub async fn update_install(
        &self,
        install: &str,
        change: &installs::UpdateInstall,
    ) -> Said<installs::InstallUpdated> {
        self.change(Method::PATCH, &format!("/v1/installs/{install}"), change).await
    }

    /// Accept a state of a component.
    pub async fn accept_state(
        &self,
        install: &str,
        component: &str,
        ask: &installs::AcceptState,
    ) -> Said<Done> {
        let path = format!("/v1/installs/{install}/components/{component}/accepted-state");
        self.change(Method::POST, &path, ask).await
    }

    /// A new enrolment token for an install.
    pub async fn create_enrolment_token(&self, install: &str) -> Said<installs::EnrolmentIssued> {
        let path = format!("/v1/installs/{install}/enrolment-tokens");
        self.change(Method::POST, &path, &json!({})).await
    }

    /// An enrolment token for a build runner.
    pub async fn create_build_enrolment_token(&self) -> Said<installs::EnrolmentIssued> {
        self.change(Method::POST, "/v1/runners/enrolment-tokens", &json!({})).await
    }

    /// Ask for an operation on an install.
    pub async fn request_run(
        &self,
        install: &str,
        ask: &runs::RequestRun,
    ) -> Said<runs::RunRequested> {
        self.change(Method::POST, &format!("/v1/installs/{install}/runs"), ask).await
    }

    /// Runs, the newest first.
    pub async fn runs(&self, which: &runs::RunsQuery) -> Said<Page<runs::RunSummary>> {
        self.fresh("/v1/runs", which).await
    }

    /// One run with its steps.
    pub async fn run(&self, run: RunId) -> Said<runs::Run> {
        self.fresh(&format!("/v1/runs/{run}"), &()).await
    }

    /// The redacted summary of a step's plan.
    pub async fn plan(&self, run: RunId, step: StepId) -> Said<Value> {
        self.get(&format!("/v1/runs/{run}/steps/{step}/plan"), &()).await
    }

    /// Say yes to a plan.
    pub async fn approve(&self, run: RunId, word: &runs::ApproveRun) -> Said<Done> {
        self.change(Method::POST, &format!("/v1/runs/{run}/approve"), word).await
    }

    /// Say no to a plan.
    pub async fn deny(&self, run: RunId, word: &runs::DenyRun) -> Said<Done> {
        self.change(Method::POST, &format!("/v1/runs/{run}/deny"), word).await
    }

    /// Stop a run.
    pub async fn cancel_run(&self, run: RunId, why: &jobs::Cancel) -> Said<Done> {
        self.change(Method::POST, &format!("/v1/runs/{run}/cancel"), why).await
    }

    /// Do what failed again, as a new run.
    pub async fn retry_run(&self, run: RunId, why: &ReasonBody) -> Said<runs::RunRequested> {
        self.change(Method::POST, &format!("/v1/runs/{run}/retry"), why).await
    }

    /// Jobs, the newest first.
    pub async fn jobs(&self, which: &jobs::JobsQuery) -> Said<Page<jobs::Job>> {
        self.fresh("/v1/jobs", which).await
    }

    /// One job.
    pub async fn job(&self, job: JobId) -> Said<jobs::Job> {
        self.fresh(&format!("/v1/jobs/{job}"), &()).await
    }

    /// Ask a job to stop.
    pub async fn cancel_job(&self, job: JobId, why: &jobs::Cancel) -> Said<Done> {
        self.change(Method::POST, &format!("/v1/jobs/{job}/cancel"), why).await
    }

    /// Say what became of an execution of which nobody can say.
    pub async fn resolve_job(&self, job: JobId, word: &jobs::Resolve) -> Said<Done> {
        self.change(Method::POST, &format!("/v1/jobs/{job}/resolve"), word).await
    }

    /// The log of one attempt: its records up to now, one per line.
    pub async fn log(&self, job: JobId, attempt: u32, since_n: u64) -> Said<Response> {
        let query = jobs::LogQuery { since_n: Some(since_n).filter(|n| *n > 0) };
        let path = format!("/v1/jobs/{job}/attempts/{attempt}/log");
        self.open(Method::GET, &path, &query, NDJSON, None).await
    }

    /// The log of one attempt as it grows, as server-sent events.
    pub async fn follow_log(&self, job: JobId, attempt: u32, after_n: u64) -> Said<Response> {
        let path = format!("/v1/jobs/{job}/attempts/{attempt}/log");
        self.open(Method::GET, &path, &(), EVENT_STREAM, Some(&after_n.to_string())).await
    }

    /// All runners.
    pub async fn runners(&self, listing: &Listing) -> Said<Page<runners::Runner>> {
        self.fresh("/v1/runners", listing).await
    }

    /// One runner.
    pub async fn runner(&self, runner: RunnerId) -> Said<runners::Runner> {
        self.fresh(&format!("/v1/runners/{runner}"), &()).await
    }

    /// The newest signed heads of a runner's journal.
    pub async fn journal_heads(&self, runner: RunnerId) -> Said<runners::JournalHeads> {
        self.get(&format!("/v1/runners/{runner}/journal-heads"), &()).await
    }

    /// `disable`, `enable`, `drain`, `resume` or `revoke` a runner.
    pub async fn order_runner(&self, runner: RunnerId, verb: &str, why: &ReasonBody) -> Said<Done> {
        self.change(Method::POST, &format!("/v1/runners/{runner}/{verb}"), why).await
    }

    /// Some events.
    pub async fn events(&self, which: &audit::EventsQuery) -> Said<audit::Events> {
        self.exact("/v1/audit/events", which).await
    }

    /// All events, one per line, as long as it takes.
    pub async fn export(&self, which: &audit::EventsQuery) -> Said<Response> {
        self.open(Method::GET, "/v1/audit/export", which, NDJSON, None).await
    }

    /// A signed checkpoint of now.
    pub async fn checkpoint(&self) -> Said<audit::Checkpoint> {
        self.exact("/v1/audit/checkpoint", &()).await
    }

    /// A proof of inclusion or of consistency.
    pub async fn proof(&self, which: &audit::ProofQuery) -> Said<audit::Proof> {
        self.exact("/v1/audit/proofs", which).await
    }

    /// A bundle that proves an event or a stream offline.
    pub async fn bundle(&self, which: &bundles::BundleQuery) -> Said<Response> {
        self.open(Method::GET, "/v1/audit/bundle", which, MEDIA_TYPE, None).await
    }

    /// Every event of a part of the log, one per line, behind one that says what they come to.
    pub async fn range(&self, which: &bundles::RangeQuery) -> Said<Response> {
        self.open(Method::GET, "/v1/audit/range", which, NDJSON, None).await
    }

    /// The state of one thing as of a position or a moment.
    pub async fn as_of(&self, which: &audit::AsOfQuery) -> Said<audit::AsOf> {
        self.get("/v1/audit/state", which).await
    }

    /// What changed of one thing between two points, and what happened meanwhile.
    pub async fn between(&self, which: &history::StreamDiffQuery) -> Said<history::StreamDiff> {
        self.get("/v1/audit/diff", which).await
    }

    /// What changed between two points in every install.
    pub async fn installs_between(
        &self,
        which: &history::InstallsDiffQuery,
    ) -> Said<history::InstallsDiff> {
        self.get("/v1/audit/diff/installs", which).await
    }

    /// What happens, as it happens, as server-sent events.
    pub async fn changes(&self, which: &audit::ChangesQuery) -> Said<Response> {
        self.open(Method::GET, "/v1/changes", which, EVENT_STREAM, None).await
    }

    /// All projections.
    pub async fn projections(&self) -> Said<Page<projections::Projection>> {
        self.get("/v1/projections", &()).await
    }

    /// The rows of a projection as they were: progress and rows as server-sent events.
    pub async fn look(&self, name: &str, which: &projections::RowsQuery) -> Said<Response> {
        let path = format!("/v1/projections/{name}/rows");
        self.open(Method::GET, &path, which, EVENT_STREAM, None).await
    }

    /// `rebuild`, `rollback` or `verify` a projection: progress as server-sent events. Only a rebuild takes a query.
    pub async fn work_on_projection(
        &self,
        name: &str,
        verb: &str,
        how: &projections::RebuildQuery,
    ) -> Said<Response> {
        let path = format!("/v1/projections/{name}/{verb}");
        self.open(Method::POST, &path, how, EVENT_STREAM, None).await
    }

    /// Drop the rows of a projection that are kept as of a position.
    pub async fn drop_kept(&self, name: &str, position: u64) -> Said<Done> {
        let path = format!("/v1/projections/{name}/as-of/{position}");
        self.change(Method::DELETE, &path, &json!({})).await
    }

    /// Look at everything that is stored: progress as server-sent events.
    pub async fn examine(&self) -> Said<Response> {
        self.open(Method::POST, "/v1/audit/doctor", &(), EVENT_STREAM, None).await
    }

    /// All tokens.
    pub async fn tokens(&self, listing: &Listing) -> Said<Page<tokens::Token>> {
        self.fresh("/v1/tokens", listing).await
    }

    /// Make a principal with a token.
    pub async fn create_token(&self, ask: &tokens::CreateToken) -> Said<tokens::TokenCreated> {
        self.change(Method::POST, "/v1/tokens", ask).await
    }

    /// Call a principal something else.
    pub async fn name_principal(
        &self,
        id: PrincipalId,
        ask: &tokens::RenamePrincipal,
    ) -> Said<Done> {
        self.change(Method::PUT, &format!("/v1/principals/{id}/name"), ask).await
    }

    /// Make a token useless.
    pub async fn revoke_token(&self, token: TokenId) -> Said<Done> {
        self.change(Method::DELETE, &format!("/v1/tokens/{token}"), &json!({})).await
    }

    /// Let a principal do more.
    pub async fn grant_role(&self, principal: PrincipalId, role: &str) -> Said<Done> {
        let path = format!("/v1/principals/{principal}/roles/{role}");
        self.change(Method::PUT, &path, &json!({})).await
    }

    /// Let a principal do less.
    pub async fn revoke_role(&self, principal: PrincipalId, role: &str) -> Said<Done> {
        let path = format!("/v1/principals/{principal}/roles/{role}");
        self.change(Method::DELETE, &path, &json!({})).await
    }

    /// Let nobody in with an enrolment token.
    pub async fn revoke_enrolment_token(&self, token: TokenId, why: &ReasonBody) -> Said<Done> {
        self.change(Method::POST, &format!("/v1/enrolment-tokens/{token}/revoke"), why).await
    }

    /// The bytes of a blob: a plan's summary, a manifest, a bundle.
    pub async fn blob(&self, digest: &Digest) -> Said<Response> {
        self.open(Method::GET, &format!("/v1/blobs/{digest}"), &(), "*/*", None).await
    }
}
