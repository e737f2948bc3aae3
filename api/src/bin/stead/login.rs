//! `stead login`: keep a server's address and a token.
use clap::Args;

use crate::{
    failure::Failure,
    render::write,
    settings::{Kept, Settings},
};

/// Keep a server's address and a token for the commands to come
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stead login --server http://127.0.0.1:7800 --token-file data/owner.token
  STEAD_TOKEN=… stead login --server https://stead.example.com --ca-file ca.pem")]
pub struct Login {}

/// Try the token first; keep it only when the server knows it.
pub async fn run(settings: &Settings) -> Result<(), Failure> {
    let desk = settings.desk()?;
    let target = settings.target()?;
    let me = desk.client.whoami().await?;
    let ca_file = target.ca.map(|path| path.canonicalize().unwrap_or(path));
    let kept = Kept { server: Some(target.server.clone()), token: target.token, ca_file };
    let path = kept.write()?;
    desk.screen.one(&me, |_| {
        format!(
            "Logged in to {} ({}) as {}, {}.\nKept in {}.\n",
            target.server,
            me.log,
            me.principal,
            me.roles.join(", "),
            path.display()
        )
    })
}

/// Say who the token belongs to.
pub async fn whoami(settings: &Settings) -> Result<(), Failure> {
    let desk = settings.desk()?;
    let me = desk.client.whoami().await?;
    desk.screen.one(&me, |_| {
        format!(
            "{}, {}, at {} ({}, version {}, position {})\n",
            me.principal,
            me.roles.join(", "),
            desk.client.server(),
            me.log,
            me.version,
            me.position
        )
    })
}

/// Forget what was kept.
pub fn logout() -> Result<(), Failure> {
    let path = Kept::path()?;
    match std::fs::remove_file(&path) {
        Ok(()) => write(&format!("Forgot {}.\n", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            write("Nobody was logged in.\n")
        }
        Err(error) => Err(error.into()),
    }
}
