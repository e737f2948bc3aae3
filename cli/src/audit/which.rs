//! Which thing is meant: one option for each kind, or any stream.
use clap::Args;
use domain::ids::{BuildId, ComponentId, JobId, RunId, RunnerId};

#[derive(Debug, Args)]
#[group(required = false, multiple = false)]
pub(crate) struct Which {
    /// An install's name or id
    #[arg(long)]
    install: Option<String>,
    /// A run's id
    #[arg(long)]
    run: Option<RunId>,
    /// A job's id
    #[arg(long)]
    job: Option<JobId>,
    /// An app's name or id
    #[arg(long)]
    app: Option<String>,
    /// A component's id
    #[arg(long)]
    component: Option<ComponentId>,
    /// A build's id
    #[arg(long)]
    build: Option<BuildId>,
    /// A runner's id
    #[arg(long)]
    runner: Option<RunnerId>,
    /// Any stream: `<aggregate type>/<aggregate id>`
    #[arg(long)]
    stream: Option<String>,
}

impl Which {
    /// As the API has it. `None`: no option is given, where none has to be.
    pub(crate) fn stream(self) -> Option<String> {
        let Which { install, run, job, app, component, build, runner, stream } = self;
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
