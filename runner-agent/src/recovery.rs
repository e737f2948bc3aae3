//! Recovery of the install's keys on another host.
//!
//! `recovery/RECIPIENT.json` contains the seed, wrapped for one recipient of the customer. Only the
//! holder of the recipient's private key can read it. The agent sends the wrapped seeds to the server
//! when it opens a session, and [`successor`] reads them there on a new host.
pub(crate) mod successor;

use std::{fs, io, path::PathBuf, time::SystemTime};

use anyhow::{Context as _, bail};
use install_keys::{InstallKeys, Of, Recipient, WrappedSeed};
use schemas::runner::MAX_RECIPIENTS;
use tracing::warn;

use crate::{
    data::{self, Data},
    enrol::Identity,
};

const DIRECTORY: &str = "recovery";

/// Returns the warning of a runner whose keys cannot be recovered, for its log and its status.
pub fn warning(data: &Data, keys: &InstallKeys, identity: &Identity) -> Option<&'static str> {
    let install = identity.install?;
    let of = Of { log_id: &identity.log_id, install };
    let stored = list(data).unwrap_or_default();
    let has_current = stored.iter().any(|wrapped| wrapped.is_current(&of, keys));
    (!has_current).then_some(
        "The keys of this install have no recovery recipient: if this host is lost, its data is lost. Add one: \
         stead-runner recovery add age1…",
    )
}

/// Wraps the seed for a recipient, and returns the file. Keeps a wrapped seed of the current keys.
pub fn add(
    data: &Data,
    keys: &InstallKeys,
    of: &Of<'_>,
    recipient: &Recipient,
) -> anyhow::Result<PathBuf> {
    data::remove(&removed_path(data, recipient))?;
    let path = path(data, recipient);
    if !path.exists() && list(data)?.len() >= MAX_RECIPIENTS {
        bail!(
            "cannot add the recipient: this runner has {MAX_RECIPIENTS} recipients; remove one with \
             `stead-runner recovery remove`"
        );
    }
    if let Ok(Some(existing)) = find(data, recipient)
        && existing.is_current(of, keys)
    {
        return Ok(path);
    }
    let wrapped = keys.wrap_seed(of, recipient, &mut install_keys::os_rng());
    let wrapped = wrapped.context("cannot wrap the seed")?;
    data::directory(&data.path(DIRECTORY))?;
    data::replace_json(&path, &wrapped)?;
    Ok(path)
}

/// Wraps the seed for the recipients of a command line. One that the customer removed stays removed: a
/// unit file keeps its options.
pub(crate) fn add_requested(
    data: &Data,
    keys: &InstallKeys,
    of: &Of<'_>,
    recipients: &[Recipient],
) -> anyhow::Result<()> {
    for to in recipients {
        if was_removed(data, to)? {
            warn!(
                recipient = %to,
                "Ignoring --recovery: `stead-runner recovery remove` removed this recipient. Remove the option, or add the \
                 recipient again with `stead-runner recovery add`"
            );
        } else {
            add(data, keys, of, to)?;
        }
    }
    Ok(())
}

/// Returns the wrapped seeds, ordered by recipient.
///
/// # Errors
/// If one cannot be read: it could hide that an install has no recovery.
pub fn list(data: &Data) -> anyhow::Result<Vec<WrappedSeed>> {
    let entries = match fs::read_dir(data.path(DIRECTORY)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        entries => entries?,
    };
    let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
    // A file that is being written has another extension.
    let mut paths = paths?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort_unstable();
    let read = |path: &PathBuf| {
        data::read_json::<WrappedSeed>(path).with_context(|| {
            format!("cannot read {}: remove the file and add the recipient again", path.display())
        })
    };
    paths.iter().filter_map(|path| read(path).transpose()).collect()
}

/// Returns the wrapped seed of a recipient.
pub fn find(data: &Data, recipient: &Recipient) -> anyhow::Result<Option<WrappedSeed>> {
    let path = path(data, recipient);
    data::read_json(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Removes a recipient from this host. Copies elsewhere stay usable. Returns false if there is none.
/// Records the removal for the next start, whose options may still name the recipient.
pub fn remove(data: &Data, recipient: &Recipient) -> io::Result<bool> {
    let path = path(data, recipient);
    if !path.try_exists()? {
        return Ok(false);
    }
    data::replace(&removed_path(data, recipient), b"")?;
    data::remove(&path)?;
    data::sync_parent(&path)?;
    Ok(true)
}

fn path(data: &Data, recipient: &Recipient) -> PathBuf {
    data.path(&format!("{DIRECTORY}/{recipient}.json"))
}

/// Returns true if the customer removed this recipient, and has not added it again.
fn was_removed(data: &Data, recipient: &Recipient) -> io::Result<bool> {
    removed_path(data, recipient).try_exists()
}

fn removed_path(data: &Data, recipient: &Recipient) -> PathBuf {
    data.path(&format!("{DIRECTORY}/{recipient}.removed"))
}

/// Returns the time of the last change of the recipients.
pub(crate) fn changed_at(data: &Data) -> Option<SystemTime> {
    fs::metadata(data.path(DIRECTORY)).ok()?.modified().ok()
}

/// Returns the wrapped seeds for the server: those of the current keys, one for each recipient, and
/// not more than the server accepts. Further files were copied there by hand.
pub(crate) fn reported(
    data: &Data,
    keys: &InstallKeys,
    of: &Of<'_>,
) -> anyhow::Result<Vec<schemas::runner::WrappedSeed>> {
    let mut current = list(data)?;
    current.retain(|wrapped| wrapped.is_current(of, keys));
    current.sort_by(|one, other| one.recipient().cmp(other.recipient()));
    current.dedup_by(|one, other| one.recipient() == other.recipient());
    if current.len() > MAX_RECIPIENTS {
        let recipients = current.len();
        warn!(
            recipients,
            "Too many recovery recipients; the server gets only the first {MAX_RECIPIENTS}"
        );
        current.truncate(MAX_RECIPIENTS);
    }
    let seed = |wrapped: WrappedSeed| -> anyhow::Result<_> {
        let (recipient, generation) = (wrapped.recipient().into(), keys.generation());
        let wrapped = serde_json::to_string(&wrapped)?;
        Ok(schemas::runner::WrappedSeed { recipient, generation, wrapped })
    };
    current.into_iter().map(seed).collect()
}

#[cfg(test)]
mod tests {
    use domain::ids::InstallId;

    use super::*;
    use crate::seed;

    const RECIPIENT: &str = "age1mz625ny4ugt7hk07qml93y7wte4hd28ftwejjy3elg3ux59jk5yqsys3dy";

    fn of() -> Of<'static> {
        Of { log_id: "log", install: InstallId(ulid::Ulid(1)) }
    }

    fn recipient() -> Recipient {
        RECIPIENT.parse().unwrap()
    }

    #[test]
    fn recipients_are_limited_listed_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        let keys = seed::open_or_create(&data, false).unwrap();
        assert!(list(&data).unwrap().is_empty());
        let file = add(&data, &keys, &of(), &recipient()).unwrap();
        add(&data, &keys, &of(), &recipient()).unwrap();
        assert_eq!(list(&data).unwrap().len(), 1);
        assert!(list(&data).unwrap()[0].is_current(&of(), &keys));
        let reported = reported(&data, &keys, &of()).unwrap();
        assert_eq!((reported.len(), reported[0].problem()), (1, None));
        // The server cannot use those of former keys.
        assert!(super::reported(&data, &keys.successor(), &of()).unwrap().is_empty());
        for number in 1..=MAX_RECIPIENTS {
            fs::copy(&file, file.with_file_name(format!("{number}.json"))).unwrap();
        }
        // Copies of one recipient.
        assert_eq!(super::reported(&data, &keys, &of()).unwrap(), reported);
        fs::remove_file(file.with_file_name("1.json")).unwrap();
        assert!(!was_removed(&data, &recipient()).unwrap());
        assert!(remove(&data, &recipient()).unwrap());
        assert!(!remove(&data, &recipient()).unwrap());
        assert!(was_removed(&data, &recipient()).unwrap());
        add(&data, &keys, &of(), &recipient()).unwrap();
        assert!(!was_removed(&data, &recipient()).unwrap());
        let another = "age104e6ugjpd7xcv305fz25j4kn29q5fxaqvrztfesfcykx0x70gazsyhzjwf";
        let error = add(&data, &keys, &of(), &another.parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains("has 10 recipients"), "{error}");
        fs::write(&file, "{").unwrap();
        assert!(list(&data).is_err());
    }

    #[test]
    fn a_runner_without_a_current_recipient_is_warned() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        let keys = seed::open_or_create(&data, false).unwrap();
        let identity = Identity {
            runner: domain::ids::RunnerId(ulid::Ulid(3)),
            mode: schemas::runner::RunnerMode::Install,
            install: Some(of().install),
            log_id: "log".into(),
            server: "http://localhost".into(),
            trust: crate::tls::Trust::Public,
        };
        assert!(warning(&data, &keys, &identity).is_some());
        add(&data, &keys, &of(), &recipient()).unwrap();
        assert_eq!(warning(&data, &keys, &identity), None);
        // Another seed replaced the wrapped one.
        let other = InstallKeys::new(&install_keys::Seed::from_bytes(&[1; 32]), 1);
        assert!(warning(&data, &other, &identity).is_some());
        let build = Identity { install: None, ..identity };
        assert_eq!(warning(&data, &keys, &build), None);
    }
}
