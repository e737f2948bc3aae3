//! One method per call of the Control API.
use bytes::Bytes;
use domain::{
    digest::Digest,
    ids::{BuildId, JobId, PrincipalId, RunId, RunnerId, StepId, TokenId},
    subject::SubjectId,
};
use proof::bundle::MEDIA_TYPE;
use reqwest::{Method, Response};
use schemas::control::{
    ChangeResult, Page, PageQuery, ReasonBody, apps, audit, builds, bundles, history, installs,
    jobs, projections, runners, runs, subjects, tokens,
};
use serde_json::{Value, json};

use super::{Client, ClientError};

/// Media type of an uploaded bundle.
const BUNDLE: &str = "application/zstd";
/// Media type of server-sent events.
const EVENT_STREAM: &str = "text/event-stream";
/// Media type of an export.
const NDJSON: &str = "application/x-ndjson";

type CallResult<A> = Result<A, ClientError>;

impl Client {
    /// Returns the principal of the token, and the position of the log.
    pub async fn whoami(&self) -> CallResult<tokens::Whoami> {
        self.get("/v1/whoami", &()).await
    }

    /// Publishes a bundle as the next config version of an app. With `dry_run`, only compares the
    /// bundle with the newest version.
    pub async fn sync(
        &self,
        app: &str,
        bundle: Bytes,
        dry_run: bool,
    ) -> CallResult<apps::SyncReport> {
        let query = apps::SyncQuery { dry_run, against: None };
        self.upload(&format!("/v1/apps/{app}/sync"), &query, BUNDLE, bundle).await
    }

    pub async fn subject(&self, subject: SubjectId) -> CallResult<subjects::Subject> {
        self.get(&format!("/v1/subjects/{subject}"), &()).await
    }

    /// Deletes the key of a data subject, so that its data is permanently unreadable.
    pub async fn shred(&self, subject: SubjectId, body: &ReasonBody) -> CallResult<ChangeResult> {
        self.change(Method::POST, &format!("/v1/subjects/{subject}/shred"), body).await
    }

    /// Compares a bundle with a published version, or with the newest one.
    pub async fn sync_against(
        &self,
        app: &str,
        bundle: Bytes,
        against: Option<u32>,
    ) -> CallResult<apps::SyncReport> {
        let query = apps::SyncQuery { dry_run: true, against };
        self.upload(&format!("/v1/apps/{app}/sync"), &query, BUNDLE, bundle).await
    }

    /// Returns one config version with its whole config.
    pub async fn version(&self, app: &str, version: u32) -> CallResult<apps::ConfigVersionDetail> {
        self.fresh(&format!("/v1/apps/{app}/versions/{version}"), &()).await
    }

    pub async fn apps(&self, listing: &PageQuery) -> CallResult<Page<apps::App>> {
        self.fresh("/v1/apps", listing).await
    }

    /// One app, by name or id.
    pub async fn app(&self, app: &str) -> CallResult<apps::App> {
        self.fresh(&format!("/v1/apps/{app}"), &()).await
    }

    /// The config versions of an app, the newest first.
    pub async fn versions(
        &self,
        app: &str,
        part: &PageQuery,
    ) -> CallResult<Page<apps::ConfigVersion>> {
        self.fresh(&format!("/v1/apps/{app}/versions"), part).await
    }

    /// Returns the differences between two config versions.
    pub async fn diff(&self, app: &str, query: &apps::DiffQuery) -> CallResult<apps::Diff> {
        self.fresh(&format!("/v1/apps/{app}/diff"), query).await
    }

    /// Builds, the newest first.
    pub async fn builds(&self, query: &builds::BuildsQuery) -> CallResult<Page<builds::Build>> {
        self.fresh("/v1/builds", query).await
    }

    pub async fn build(&self, build: BuildId) -> CallResult<builds::Build> {
        self.fresh(&format!("/v1/builds/{build}"), &()).await
    }

    /// Retries the failed builds of the newest config version.
    pub async fn retry_build(&self, build: BuildId) -> CallResult<builds::BuildsRetried> {
        self.change(Method::POST, &format!("/v1/builds/{build}/retry"), &json!({})).await
    }

    pub async fn create_install(
        &self,
        body: &installs::CreateInstall,
    ) -> CallResult<installs::InstallCreated> {
        self.change(Method::POST, "/v1/installs", body).await
    }

    pub async fn installs(
        &self,
        query: &installs::InstallsQuery,
    ) -> CallResult<Page<installs::Install>> {
        self.fresh("/v1/installs", query).await
    }

    /// One install, by name or id.
    pub async fn install(&self, install: &str) -> CallResult<installs::Install> {
        self.fresh(&format!("/v1/installs/{install}"), &()).await
    }

    /// Returns the values that templates of an install can read.
    pub async fn install_state(
        &self,
        install: &str,
        when: &installs::StateQuery,
    ) -> CallResult<installs::InstallState> {
        self.get(&format!("/v1/installs/{install}/state"), when).await
    }

    /// Changes inputs, stack outputs, config version or auto-approval of an install.
    pub async fn update_install(
        &self,
        install: &str,
        change: &installs::UpdateInstall,
    ) -> CallResult<installs::InstallUpdated> {
        self.change(Method::PATCH, &format!("/v1/installs/{install}"), change).await
    }

    /// Accepts a state of a component that the runner refuses.
    pub async fn accept_state(
        &self,
        install: &str,
        component: &str,
        body: &installs::AcceptState,
    ) -> CallResult<ChangeResult> {
        let path = format!("/v1/installs/{install}/components/{component}/accepted-state");
        self.change(Method::POST, &path, body).await
    }

    pub async fn create_enrolment_token(
        &self,
        install: &str,
    ) -> CallResult<installs::EnrolmentIssued> {
        let path = format!("/v1/installs/{install}/enrolment-tokens");
        self.change(Method::POST, &path, &json!({})).await
    }

    pub async fn create_build_enrolment_token(&self) -> CallResult<installs::EnrolmentIssued> {
        self.change(Method::POST, "/v1/runners/enrolment-tokens", &json!({})).await
    }

    /// Requests an operation on an install.
    pub async fn request_run(
        &self,
        install: &str,
        body: &runs::RequestRun,
    ) -> CallResult<runs::RunRequested> {
        self.change(Method::POST, &format!("/v1/installs/{install}/runs"), body).await
    }

    /// Runs, the newest first.
    pub async fn runs(&self, query: &runs::RunsQuery) -> CallResult<Page<runs::RunSummary>> {
        self.fresh("/v1/runs", query).await
    }

    /// One run with its steps.
    pub async fn run(&self, run: RunId) -> CallResult<runs::Run> {
        self.fresh(&format!("/v1/runs/{run}"), &()).await
    }

    /// The redacted summary of a step's plan.
    pub async fn plan(&self, run: RunId, step: StepId) -> CallResult<Value> {
        self.get(&format!("/v1/runs/{run}/steps/{step}/plan"), &()).await
    }

    pub async fn approve(&self, run: RunId, body: &runs::ApproveRun) -> CallResult<ChangeResult> {
        self.change(Method::POST, &format!("/v1/runs/{run}/approve"), body).await
    }

    pub async fn deny(&self, run: RunId, body: &runs::DenyRun) -> CallResult<ChangeResult> {
        self.change(Method::POST, &format!("/v1/runs/{run}/deny"), body).await
    }

    pub async fn cancel_run(&self, run: RunId, body: &jobs::Cancel) -> CallResult<ChangeResult> {
        self.change(Method::POST, &format!("/v1/runs/{run}/cancel"), body).await
    }

    /// Retries the failed steps: in the same run while it is in progress, otherwise in a new run.
    pub async fn retry_run(&self, run: RunId, body: &ReasonBody) -> CallResult<runs::RunRequested> {
        self.change(Method::POST, &format!("/v1/runs/{run}/retry"), body).await
    }

    /// Jobs, the newest first.
    pub async fn jobs(&self, query: &jobs::JobsQuery) -> CallResult<Page<jobs::Job>> {
        self.fresh("/v1/jobs", query).await
    }

    pub async fn job(&self, job: JobId) -> CallResult<jobs::Job> {
        self.fresh(&format!("/v1/jobs/{job}"), &()).await
    }

    /// Requests the cancellation of a job.
    pub async fn cancel_job(&self, job: JobId, body: &jobs::Cancel) -> CallResult<ChangeResult> {
        self.change(Method::POST, &format!("/v1/jobs/{job}/cancel"), body).await
    }

    /// Resolves an execution with an unknown outcome.
    pub async fn resolve_job(&self, job: JobId, body: &jobs::Resolve) -> CallResult<ChangeResult> {
        self.change(Method::POST, &format!("/v1/jobs/{job}/resolve"), body).await
    }

    /// The log of one attempt: its records up to now, one per line.
    pub async fn log(&self, job: JobId, attempt: u32, since_n: u64) -> CallResult<Response> {
        let query = jobs::LogQuery { since_n: Some(since_n).filter(|n| *n > 0) };
        let path = format!("/v1/jobs/{job}/attempts/{attempt}/log");
        self.open(Method::GET, &path, &query, NDJSON, None).await
    }

    /// The log of one attempt as it grows, as server-sent events.
    pub async fn follow_log(&self, job: JobId, attempt: u32, after_n: u64) -> CallResult<Response> {
        let path = format!("/v1/jobs/{job}/attempts/{attempt}/log");
        self.open(Method::GET, &path, &(), EVENT_STREAM, Some(&after_n.to_string())).await
    }

    pub async fn runners(&self, listing: &PageQuery) -> CallResult<Page<runners::Runner>> {
        self.fresh("/v1/runners", listing).await
    }

    pub async fn runner(&self, runner: RunnerId) -> CallResult<runners::Runner> {
        self.fresh(&format!("/v1/runners/{runner}"), &()).await
    }

    /// Returns the newest signed heads of a runner's journals.
    pub async fn journal_heads(&self, runner: RunnerId) -> CallResult<runners::JournalHeads> {
        self.get(&format!("/v1/runners/{runner}/journal-heads"), &()).await
    }

    /// Runs a control command on a runner: `disable`, `enable`, `drain`, `resume`, `rekey` or
    /// `revoke`.
    pub async fn order_runner(
        &self,
        runner: RunnerId,
        verb: &str,
        body: &ReasonBody,
    ) -> CallResult<ChangeResult> {
        self.change(Method::POST, &format!("/v1/runners/{runner}/{verb}"), body).await
    }

    pub async fn events(&self, query: &audit::EventsQuery) -> CallResult<audit::Events> {
        self.exact("/v1/audit/events", query).await
    }

    /// Streams all events, one per line.
    pub async fn export(&self, query: &audit::EventsQuery) -> CallResult<Response> {
        self.open(Method::GET, "/v1/audit/export", query, NDJSON, None).await
    }

    /// Returns a signed checkpoint of the current log.
    pub async fn checkpoint(&self) -> CallResult<audit::Checkpoint> {
        self.exact("/v1/audit/checkpoint", &()).await
    }

    /// A proof of inclusion or of consistency.
    pub async fn proof(&self, query: &audit::ProofQuery) -> CallResult<audit::Proof> {
        self.exact("/v1/audit/proofs", query).await
    }

    /// Streams a bundle that proves an event, a stream or an install offline.
    pub async fn bundle(&self, query: &bundles::BundleQuery) -> CallResult<Response> {
        self.open(Method::GET, "/v1/audit/bundle", query, MEDIA_TYPE, None).await
    }

    /// Streams the events of a range, one per line, after a line that proves the range.
    pub async fn range(&self, query: &bundles::RangeQuery) -> CallResult<Response> {
        self.open(Method::GET, "/v1/audit/range", query, NDJSON, None).await
    }

    /// Returns the state of an aggregate at a position or time.
    pub async fn as_of(&self, query: &audit::AsOfQuery) -> CallResult<audit::AsOf> {
        self.get("/v1/audit/state", query).await
    }

    /// Returns the changes of an aggregate between two points, with its history.
    pub async fn between(
        &self,
        query: &history::StreamDiffQuery,
    ) -> CallResult<history::StreamDiff> {
        self.get("/v1/audit/diff", query).await
    }

    /// Returns the changes of every install between two points.
    pub async fn installs_between(
        &self,
        query: &history::InstallsDiffQuery,
    ) -> CallResult<history::InstallsDiff> {
        self.get("/v1/audit/diff/installs", query).await
    }

    /// Streams new events, as server-sent events.
    pub async fn changes(&self, query: &audit::ChangesQuery) -> CallResult<Response> {
        self.open(Method::GET, "/v1/changes", query, EVENT_STREAM, None).await
    }

    pub async fn projections(&self) -> CallResult<Page<projections::Projection>> {
        self.get("/v1/projections", &()).await
    }

    /// Streams the rows of a projection at an earlier point and the progress, as server-sent
    /// events.
    pub async fn projection_rows(
        &self,
        name: &str,
        query: &projections::RowsQuery,
    ) -> CallResult<Response> {
        let path = format!("/v1/projections/{name}/rows");
        self.open(Method::GET, &path, query, EVENT_STREAM, None).await
    }

    /// Runs `rebuild`, `rollback` or `verify` of a projection, and streams the progress as
    /// server-sent events. Only `rebuild` uses the query.
    pub async fn work_on_projection(
        &self,
        name: &str,
        verb: &str,
        query: &projections::RebuildQuery,
    ) -> CallResult<Response> {
        let path = format!("/v1/projections/{name}/{verb}");
        self.open(Method::POST, &path, query, EVENT_STREAM, None).await
    }

    /// Drops the as-of table of a projection at a position.
    pub async fn drop_as_of_table(&self, name: &str, position: u64) -> CallResult<ChangeResult> {
        let path = format!("/v1/projections/{name}/as-of/{position}");
        self.change(Method::DELETE, &path, &json!({})).await
    }

    /// Runs the self-check of the server, and streams the progress as server-sent events.
    pub async fn examine(&self) -> CallResult<Response> {
        self.open(Method::POST, "/v1/audit/doctor", &(), EVENT_STREAM, None).await
    }

    pub async fn tokens(&self, listing: &PageQuery) -> CallResult<Page<tokens::Token>> {
        self.fresh("/v1/tokens", listing).await
    }

    /// Creates a principal with a token.
    pub async fn create_token(
        &self,
        body: &tokens::CreateToken,
    ) -> CallResult<tokens::TokenCreated> {
        self.change(Method::POST, "/v1/tokens", body).await
    }

    /// Renames a principal, or deletes its name.
    pub async fn name_principal(
        &self,
        id: PrincipalId,
        body: &tokens::RenamePrincipal,
    ) -> CallResult<ChangeResult> {
        self.change(Method::PUT, &format!("/v1/principals/{id}/name"), body).await
    }

    pub async fn revoke_token(&self, token: TokenId) -> CallResult<ChangeResult> {
        self.change(Method::DELETE, &format!("/v1/tokens/{token}"), &json!({})).await
    }

    pub async fn grant_role(&self, principal: PrincipalId, role: &str) -> CallResult<ChangeResult> {
        let path = format!("/v1/principals/{principal}/roles/{role}");
        self.change(Method::PUT, &path, &json!({})).await
    }

    pub async fn revoke_role(
        &self,
        principal: PrincipalId,
        role: &str,
    ) -> CallResult<ChangeResult> {
        let path = format!("/v1/principals/{principal}/roles/{role}");
        self.change(Method::DELETE, &path, &json!({})).await
    }

    pub async fn revoke_enrolment_token(
        &self,
        token: TokenId,
        body: &ReasonBody,
    ) -> CallResult<ChangeResult> {
        self.change(Method::POST, &format!("/v1/enrolment-tokens/{token}/revoke"), body).await
    }

    /// The bytes of a blob: a plan's summary, a manifest, a bundle.
    pub async fn blob(&self, digest: &Digest) -> CallResult<Response> {
        self.open(Method::GET, &format!("/v1/blobs/{digest}"), &(), "*/*", None).await
    }
}
