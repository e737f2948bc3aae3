//! The first owner, and one more for who holds the data directory.
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
use ulid::Ulid;

use super::{People, names, secret};

/// The file of the first owner's token, inside the data directory.
pub const OWNER_TOKEN: &str = "owner.token";
/// What an owner that nobody named is called, until somebody does.
const OWNER: &str = "owner";
/// One first owner per log, also when two servers start at once.
const OWNER_NAME: &str = "principal/owner";

/// Why there is no first owner.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The token could not be written where its owner finds it.
    #[error("{path}: {reason}")]
    File { path: String, reason: io::Error },
    /// Its name could not be kept.
    #[error("the database does not answer: {0}")]
    Database(#[from] sqlx::Error),
    /// The log did not take it.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The rules did not take it.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The rules did not take it.
    #[error(transparent)]
    Name(#[from] NameError),
    /// It has no text.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// It has no text.
    #[error(transparent)]
    Digest(#[from] DigestError),
}

/// Make the first owner of a log that has nobody. The token is in the file before it is in the log, so that
/// a kill in between leaves a file without meaning and not an owner without a token.
///
/// Gives the file when an owner was made.
///
/// # Errors
/// [`BootstrapError`].
pub async fn owner(
    log: &EventLog,
    people: &People,
    data: &Path,
    now: Timestamp,
) -> Result<Option<PathBuf>, BootstrapError> {
    if !people.is_empty() {
        return Ok(None);
    }
    let (principal, path, access) = drafted(data, now)?;
    names::keep(log.pool(), principal, OWNER, now).await?;
    let taken =
        decided::<Name, BootstrapError>([NameCommand::Take { owner: principal.to_string() }], now)?;
    let writes = vec![
        Write { stream: StreamId::new(Name::NAME, OWNER_NAME), expected: 0, events: taken },
        Write {
            stream: StreamId::new(Access::NAME, principal.to_string()),
            expected: 0,
            events: access,
        },
    ];
    let meta = Meta::new(Actor::System, Ulid::new().to_string());
    match log.append(Commit::of(meta, writes)).await {
        Ok(_) => Ok(Some(path)),
        Err(AppendError::Conflict { .. }) => {
            // Another server was faster, and its data directory has the owner's token.
            let _ = fs::remove_file(&path);
            names::forget(log.pool(), principal).await?;
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Make one more owner, for who has the data directory and no token that is heard: it was lost, or has
/// expired. Gives the file. Nobody has named them: two of the name "owner" could not be told apart.
///
/// # Errors
/// [`BootstrapError`].
pub async fn another_owner(
    log: &EventLog,
    data: &Path,
    now: Timestamp,
) -> Result<PathBuf, BootstrapError> {
    let (principal, path, events) = drafted(data, now)?;
    let stream = StreamId::new(Access::NAME, principal.to_string());
    let meta = Meta::new(Actor::System, Ulid::new().to_string());
    log.append(Commit::of(meta, vec![Write { stream, expected: 0, events }])).await?;
    Ok(path)
}

/// A new owner, whose token is in its file and who is not in the log yet.
fn drafted(
    data: &Path,
    now: Timestamp,
) -> Result<(PrincipalId, PathBuf, Vec<NewEvent>), BootstrapError> {
    let (principal, token) = (PrincipalId(Ulid::new()), TokenId(Ulid::new()));
    let (clear, path) = (secret::token(), data.join(OWNER_TOKEN));
    write_private(&path, &clear)
        .map_err(|reason| BootstrapError::File { path: path.display().to_string(), reason })?;
    let issued = IssuedToken { token, sha256: secret::digest(&clear)?, expires_at: None };
    let events = decided::<Access, BootstrapError>(
        [
            AccessCommand::AddPrincipal { kind: PrincipalKind::Person, name_ref: None },
            AccessCommand::GrantRole { role: Role::Owner },
            AccessCommand::IssueToken(issued),
        ],
        now,
    )?;
    Ok((principal, path, events))
}

/// What a thing that does not exist yet answers to these commands.
fn decided<D, E>(
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
    fs::rename(draft, path)
}
