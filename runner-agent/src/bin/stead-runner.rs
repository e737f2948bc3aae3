//! Entry point of `stead-runner`, the Stead agent.
use std::{
    io::{self, IsTerminal as _},
    process::ExitCode,
};

use runner_agent::cli::{self, LogFormat};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = cli::parse();
    if let Some(ended) = cli::run_alone(&cli) {
        return exit_code(ended);
    }
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match cli.log_format() {
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).with_target(false).init(),
        LogFormat::Json => lines.json().init(),
    }
    let runtime =
        match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                eprintln!("error: cannot start the runtime: {error}");
                return ExitCode::FAILURE;
            }
        };
    let ended = runtime.block_on(cli::run(cli));
    // Pending requests to the server, for example a claim or a report, delay the exit by at most
    // this time.
    runtime.shutdown_timeout(cli::SHUTDOWN_TIMEOUT);
    exit_code(ended)
}

fn exit_code(ended: anyhow::Result<ExitCode>) -> ExitCode {
    ended.unwrap_or_else(|error| {
        let io = error.downcast_ref::<io::Error>();
        if io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            // The reader closed the pipe, as `head` does. This is not an error.
            return ExitCode::SUCCESS;
        }
        // The text may contain text of the server.
        let text = format!("{error:#}");
        let lines: Vec<String> = text.lines().map(schemas::sanitize::sanitize).collect();
        eprintln!("error: {}", lines.join("\n"));
        ExitCode::FAILURE
    })
}
