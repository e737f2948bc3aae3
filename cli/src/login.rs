//! `stead login`: stores a server's address and a token.
use clap::Args;
use schemas::control::tokens::Whoami;

use crate::{
    failure::Failure,
    settings::{Credentials, Settings},
};

/// Store the address of a server and a token for later commands
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stead login --server http://127.0.0.1:7070 --token-file data/owner.token
  STEAD_TOKEN=… stead login --server https://stead.example.com --ca-file ca.pem")]
pub(crate) struct Login {}

/// Checks the token with the server, then stores the address and the token.
pub(crate) async fn run(settings: &Settings) -> Result<(), Failure> {
    let context = settings.context()?;
    let target = settings.target()?;
    let me = context.client.whoami().await?;
    let ca_file = target.ca.map(|path| path.canonicalize().unwrap_or(path));
    let credentials =
        Credentials { server: Some(target.server.clone()), token: target.token, ca_file };
    let path = credentials.write()?;
    context.screen.print_one(&me, |_| {
        format!(
            "Logged in to {} as {} (role: {})\nCredentials file: {}\n",
            target.server,
            called(&me),
            me.roles.join(", "),
            path.display()
        )
    })
}

/// Prints the principal of the token.
pub(crate) async fn whoami(settings: &Settings) -> Result<(), Failure> {
    let context = settings.context()?;
    let me = context.client.whoami().await?;
    context.screen.print_one(&me, |_| {
        format!(
            "{}, {}, at {} ({}, version {}, position {})\n",
            called(&me),
            me.roles.join(", "),
            context.client.server(),
            me.log,
            me.version,
            me.position
        )
    })
}

fn called(me: &Whoami) -> String {
    let principal = me.principal.to_string();
    crate::render::actor_text(&principal, me.name.as_deref())
}

/// Deletes the stored credentials.
pub(crate) fn logout(settings: &Settings) -> Result<(), Failure> {
    let path = Credentials::path()?;
    let forgotten = match std::fs::remove_file(&path) {
        Ok(()) => true,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(error.into()),
    };
    let result = serde_json::json!({ "forgotten": forgotten, "file": path });
    settings.screen().print_one(&result, |_| match forgotten {
        true => format!("Logged out. Deleted {}\n", path.display()),
        false => "Not logged in.\n".into(),
    })
}
