//! `stead up`: the server, its private Postgres and a build runner on one machine.
use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use api::{
    postgres::{DataLock, Embedded},
    server::{Options, Ready, Server, archives_directory},
};
use clap::Args;
use cli::render::Output;
use domain::image::is_host;
use event_log::{Archives, Source};
use tracing::warn;

use crate::{
    build_runner::BuildRunner,
    plugins,
    serve::{Common, StopSignals, finish, task_failed},
};

/// Period of the restart limit. `stead up` starts Postgres at most four times per period.
const RESTART_PERIOD: Duration = Duration::from_secs(60);

/// Start a server on this machine with a private Postgres and a build runner
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stead up
  stead up --data ./data --control-listen 127.0.0.1:0 --ready-file ready.json")]
pub(crate) struct Up {
    #[command(flatten)]
    common: Common,
    /// Do not start a build runner; builds wait until a build runner enrols
    #[arg(long)]
    no_build_runner: bool,
    /// Mirror from which the build runner reads images of a registry, for example
    /// docker.io=http://127.0.0.1:5000; may be repeated
    #[arg(long, value_name = "HOST=URL", value_parser = mirror, conflicts_with = "no_build_runner")]
    registry_mirror: Vec<String>,
    /// Public key of a publisher whose plugins the build runner executes, in addition to the
    /// plugins that are installed with stead; may be repeated
    #[arg(
        long,
        value_name = "KEY",
        env = "STEAD_PLUGIN_PUBLISHER",
        value_delimiter = ',',
        value_parser = publisher
    )]
    plugin_publisher: Vec<String>,
}

/// Checks the form of a mirror. The build runner parses it.
fn mirror(text: &str) -> Result<String, String> {
    let is_url = |url: &str| url.starts_with("http://") || url.starts_with("https://");
    match text.split_once('=') {
        Some((host, url)) if is_host(host) && is_url(url) => Ok(text.to_owned()),
        Some(_) | None => Err("write HOST=URL with an http or https URL".to_owned()),
    }
}

fn publisher(text: &str) -> Result<String, String> {
    match schemas::plugin::artifact::parse_publisher(text) {
        Some(_) => Ok(text.to_lowercase()),
        None => {
            Err("it is not the public key of a publisher; pass 64 hexadecimal digits".to_owned())
        }
    }
}

/// Runs until a stop signal.
pub(crate) async fn run(up: Up, output: Output) -> ExitCode {
    up.common.start_log();
    finish(up.up(output).await, output)
}

impl Up {
    async fn up(self, output: Output) -> anyhow::Result<()> {
        let stop = StopSignals::listen()?;
        let data = self.common.data()?;
        let _lock = DataLock::take(&data)?;
        let mut postgres = Embedded::start(&data).await?;
        let served = self.serve(&data, &mut postgres, stop, output).await;
        // Stop Postgres after a failure too.
        let stopped = postgres.stop().await;
        served.and(stopped.map_err(Into::into))
    }

    async fn serve(
        &self,
        data: &std::path::Path,
        postgres: &mut Embedded,
        stop: StopSignals,
        output: Output,
    ) -> anyhow::Result<()> {
        let owner = event_log::pool().max_connections(4).connect_with(postgres.owner()).await?;
        let archives = archives_directory(data, self.common.archives.as_deref());
        let keys = api::keys::wrapping::load(&data.join("keys"))?;
        api::server::prepare(Source::new(&owner, &Archives::at(archives), &keys)).await?;
        owner.close().await;
        let options = self.common.options(data.to_path_buf(), postgres.app(), 16);
        let options = Options { owner: Some(postgres.owner()), ..options };
        postgres.durable().await?;
        let mut server = Server::start(options).await?;
        plugins::publish_installed(&server.app, data).await;
        let (database, _) = postgres.urls();
        server.ready = Ready { database: Some(database), ..server.ready };
        let build_runner = if self.no_build_runner {
            None
        } else {
            let certificate = self.common.tls_cert.as_deref();
            let installed = server.app.config.plugin_publisher.get().cloned();
            let publishers = self.plugin_publisher.iter().cloned().chain(installed).collect();
            let format = self.common.log_format;
            let mirrors = self.registry_mirror.clone();
            BuildRunner::start(server.app.clone(), certificate, format, mirrors, publishers)
        };
        self.common.announce(&server.ready, output)?;
        if output == Output::Table
            && let Some(code) = server.login_code().await
        {
            // A browser does not send the part after `#`, so no access log contains the code.
            println!(
                "Dashboard:\n  {}/ui/login#code={code}\n  (valid once, for 5 min, on this machine)",
                server.ready.control
            );
        }
        if output == Output::Table && build_runner.is_none() && !self.no_build_runner {
            println!(
                "No build runner: stead-runner is neither next to stead nor on PATH; install it there and start stead again"
            );
        }
        let ended = tokio::select! {
            ended = supervise(postgres, stop) => ended,
            task = server.failed() => Err(task_failed(task)),
        };
        if let Some(build_runner) = build_runner {
            build_runner.stop().await;
        }
        server.stop().await;
        ended
    }
}

/// Waits for a stop signal. Restarts a Postgres that ends, up to the restart limit.
async fn supervise(postgres: &mut Embedded, stop: StopSignals) -> anyhow::Result<()> {
    let mut starts = vec![Instant::now()];
    let mut stop = std::pin::pin!(stop.received());
    loop {
        tokio::select! {
            () = &mut stop => return Ok(()),
            () = postgres.ended() => {}
        }
        starts.retain(|start| start.elapsed() < RESTART_PERIOD);
        anyhow::ensure!(
            starts.len() < 4,
            "the server stopped: the private Postgres ended after four starts within 60 s; see postgres.log in the data directory for the reason"
        );
        starts.push(Instant::now());
        warn!("Private Postgres ended; the server restarts it");
        postgres.restart().await?;
    }
}
