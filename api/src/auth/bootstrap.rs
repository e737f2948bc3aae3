//! The first owner, and recovery of an owner by access to the data directory.
use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use domain::{
    access::{Access, AccessCommand, AccessError, IssuedToken, PrincipalKind, Role},
    actor::Actor,
    decider::{Decider, Timestamp},
    digest::DigestError,
    ids::{PrincipalId, TokenId},
    name::{Name, NameCommand, NameError},
};
use event_log::{AppendError, Commit, EventLog, Meta, NewEvent, StreamId, Write};

use super::{PrincipalCache, names, secret};
use crate::ids;

/// File in the data directory with the token of the owner that was last created there.
pub const OWNER_TOKEN: &str = "owner.token";
/// Initial name of the first owner.
const DEFAULT_NAME: &str = "owner";
/// Reserved name that permits one first owner per log, even if two servers start concurrently.
const RESERVED_NAME: &str = "principal/owner";

/// Reasons why an owner cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    #[error("cannot write {path}: {reason}")]
    File { path: String, reason: io::Error },
    #[error("cannot update the owner's name: {0}")]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Digest(#[from] DigestError),
}

/// Creates the first owner of a log without principals. Writes the token file before the commit, so
/// that a killed server cannot leave an owner without a token.
///
/// Returns the path of the file if an owner was created.
///
/// # Errors
/// [`BootstrapError`].
pub(crate) async fn create_first_owner(
    log: &EventLog,
    principals: &PrincipalCache,
    data: &Path,
    now: Timestamp,
) -> Result<Option<PathBuf>, BootstrapError> {
    if !principals.is_empty() {
        return Ok(None);
    }
    let (principal, path, access) = prepare_owner(data, now)?;
    names::set(log.pool(), principal, DEFAULT_NAME, now).await?;
    let name_events = decide_new::<Name, BootstrapError>(
        [NameCommand::Take { owner: principal.to_string() }],
        now,
    )?;
    let writes = vec![
        Write {
            stream: StreamId::new(Name::NAME, RESERVED_NAME),
            expected: 0,
            events: name_events,
        },
        Write {
            stream: StreamId::new(Access::NAME, principal.to_string()),
            expected: 0,
            events: access,
        },
    ];
    let meta = Meta::new(Actor::System, ids::new_ulid().to_string());
    match log.append(Commit::of(meta, writes)).await {
        Ok(_) => Ok(Some(path)),
        Err(AppendError::Conflict { .. }) => {
            // Another server created the owner, and its data directory has the token.
            let _ = fs::remove_file(&path);
            names::remove(log.pool(), principal).await?;
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Creates an additional owner, for an operator with access to the data directory and without a
/// valid owner token. Returns the path of the token file. Stores no name, because two owners named
/// "owner" would be indistinguishable.
///
/// # Errors
///
/// [`BootstrapError`].
pub(crate) async fn create_another_owner(
    log: &EventLog,
    data: &Path,
    now: Timestamp,
) -> Result<PathBuf, BootstrapError> {
    let (principal, path, events) = prepare_owner(data, now)?;
    let stream = StreamId::new(Access::NAME, principal.to_string());
    let meta = Meta::new(Actor::System, ids::new_ulid().to_string());
    log.append(Commit::of(meta, vec![Write { stream, expected: 0, events }])).await?;
    Ok(path)
}

/// Writes the token file of a new owner and returns the events that create the owner.
fn prepare_owner(
    data: &Path,
    now: Timestamp,
) -> Result<(PrincipalId, PathBuf, Vec<NewEvent>), BootstrapError> {
    let (principal, token) = (PrincipalId(ids::new_ulid()), TokenId(ids::new_ulid()));
    let (clear, path) = (secret::token(), data.join(OWNER_TOKEN));
    write_private(&path, &clear)
        .map_err(|reason| BootstrapError::File { path: path.display().to_string(), reason })?;
    let issued = IssuedToken { token, sha256: secret::digest(&clear)?, expires_at: None };
    let events = decide_new::<Access, BootstrapError>(
        [
            AccessCommand::AddPrincipal { kind: PrincipalKind::Person, name_ref: None },
            AccessCommand::GrantRole { role: Role::Owner },
            AccessCommand::IssueToken(issued),
        ],
        now,
    )?;
    Ok((principal, path, events))
}

/// Returns the events of these commands for a new aggregate.
fn decide_new<D, E>(
    commands: impl IntoIterator<Item = D::Command>,
    now: Timestamp,
) -> Result<Vec<NewEvent>, E>
where
    D: Decider,
    E: From<D::Error> + From<serde_json::Error>,
{
    let (mut state, mut events) = (D::default(), Vec::new());
    for command in commands {
        for event in state.decide(command, now)? {
            events.push(NewEvent::of(&event)?);
            state.evolve(event);
        }
    }
    Ok(events)
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    fs::rename(draft, path)?;
    // The event of the owner is appended next: an owner without a token could not log in.
    path.parent().map_or(Ok(()), |directory| fs::File::open(directory)?.sync_all())
}
