//! Selects an aggregate: one option per aggregate type, or any stream.
use clap::Args;
use domain::ids::{BuildId, ComponentId, JobId, RunId, RunnerId};

#[derive(Debug, Args)]
#[group(required = false, multiple = false)]
pub(crate) struct AggregateArgs {
    /// Name or id of an install
    #[arg(long)]
    install: Option<String>,
    /// Id of a run
    #[arg(long)]
    run: Option<RunId>,
    /// Id of a job
    #[arg(long)]
    job: Option<JobId>,
    /// Name or id of an app
    #[arg(long)]
    app: Option<String>,
    /// Id of a component
    #[arg(long)]
    component: Option<ComponentId>,
    /// Id of a build
    #[arg(long)]
    build: Option<BuildId>,
    /// Id of a runner
    #[arg(long)]
    runner: Option<RunnerId>,
    /// Any stream: `<aggregate type>/<aggregate id>`
    #[arg(long)]
    stream: Option<String>,
}

impl AggregateArgs {
    /// Returns the stream, as in the API. `None` if no option is set.
    pub(crate) fn stream(self) -> Option<String> {
        let AggregateArgs { install, run, job, app, component, build, runner, stream } = self;
        let of = |kind: &str, id: Option<String>| id.map(|id| format!("{kind}/{id}"));
        let all = [
            of("install", install),
            of("run", run.map(String::from)),
            of("job", job.map(String::from)),
            of("app", app),
            of("component", component.map(String::from)),
            of("build", build.map(String::from)),
            of("runner", runner.map(String::from)),
            stream,
        ];
        all.into_iter().flatten().next()
    }
}
