//! Recovery of the install's keys on another host.
//!
//! `recovery/RECIPIENT.json` contains the seed, wrapped for one recipient of the customer. Only the
//! holder of the recipient's private key can read it, so the customer may store copies anywhere.
use std::{fs, io, path::PathBuf};

use anyhow::{Context as _, bail};
use domain::ids::InstallId;
use install_keys::{Fingerprint, InstallKeys, Of, Recipient, RecoveryIdentity, WrappedSeed};
use zeroize::Zeroizing;

use crate::{
    data::{self, Data},
    disable,
    enrol::Identity,
    seed,
};

const DIRECTORY: &str = "recovery";
/// Maximum number of recipients.
const MAX_RECIPIENTS: usize = 10;

/// Returns the warning of a runner whose keys cannot be recovered, for its log and its status.
pub fn warning(data: &Data, keys: &InstallKeys, identity: &Identity) -> Option<&'static str> {
    let Some(install) = identity.install else { return None };
    let of = Of { log_id: &identity.log_id, install };
    let stored = list(data).unwrap_or_default();
    let has_current = stored.iter().any(|wrapped| wrapped.is_current(&of, keys));
    (!has_current).then_some(
        "The keys of this install have no recovery recipient: if this host is lost, its data is lost. Add one: \
         stead-runner recovery add age1…",
    )
}

/// Wraps the seed for a recipient, and returns the file. A repeated call wraps it again.
pub fn add(
    data: &Data,
    keys: &InstallKeys,
    of: &Of<'_>,
    recipient: &Recipient,
) -> anyhow::Result<PathBuf> {
    let path = path(data, recipient);
    if !path.exists() && list(data)?.len() >= MAX_RECIPIENTS {
        bail!(
            "cannot add the recipient: this runner has {MAX_RECIPIENTS} recipients; remove one with \
             `stead-runner recovery remove`"
        );
    }
    let wrapped = keys.wrap_seed(of, recipient, &mut install_keys::os_rng());
    let wrapped = wrapped.context("cannot wrap the seed")?;
    data::directory(&data.path(DIRECTORY))?;
    data::replace_json(&path, &wrapped)?;
    Ok(path)
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
pub fn remove(data: &Data, recipient: &Recipient) -> io::Result<bool> {
    let path = path(data, recipient);
    if !path.try_exists()? {
        return Ok(false);
    }
    data::remove(&path)?;
    data::sync_parent(&path)?;
    Ok(true)
}

fn path(data: &Data, recipient: &Recipient) -> PathBuf {
    data.path(&format!("{DIRECTORY}/{recipient}.json"))
}

/// Wrapped seed that the customer recovers, with what the customer expects of it.
pub struct Request {
    pub wrapped: WrappedSeed,
    pub identity: RecoveryIdentity,
    pub install: InstallId,
    pub fingerprint: Fingerprint,
}

/// Imports the seed into a new data directory, and disables its runner. `open` opens the directory
/// after all checks of the seed, so that a wrong seed changes nothing.
pub fn recover(
    request: &Request,
    open: impl FnOnce() -> anyhow::Result<Data>,
) -> anyhow::Result<InstallKeys> {
    let recovered =
        request.wrapped.recover(request.install, &request.fingerprint, &request.identity);
    let recovered = recovered.context("cannot recover the install")?;
    let data = open()?;
    let Some(_lock) = data.lock()? else {
        bail!("cannot recover the install: an agent uses {}; stop it", data.root().display());
    };
    if seed::open(&data)?.is_some() || data.path("runner.json").try_exists()? {
        bail!(
            "cannot recover the install: {} belongs to a runner; pass a new directory with --data",
            data.root().display()
        );
    }
    // First, so that a runner with these keys never starts enabled.
    let reason = format!(
        "recovered the keys of {}; the states that the server claims are unproved: check them, then run \
         `stead-runner enable`",
        request.install
    );
    disable::disable(&data, &reason, false)?;
    let keys = InstallKeys::new(&recovered.seed, recovered.generation);
    let digits = Zeroizing::new(hex::encode(recovered.seed.expose()));
    seed::import(&data, &digits, recovered.generation)?;
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str =
        "AGE-SECRET-KEY-13ZDW9XYMMA2ZTKZMCKGWU39GHPLXFVFNCG0XHGWLWXYHR0WVYPZSJ9DMV7";
    const OTHER: &str =
        "AGE-SECRET-KEY-1UTKZ4G5ZCVHH2Z38G2484L3TV7PXF877GWM0TQ0YJ6QP9HSCPCDQMN6GKW";
    const RECIPIENT: &str = "age1mz625ny4ugt7hk07qml93y7wte4hd28ftwejjy3elg3ux59jk5yqsys3dy";

    fn of() -> Of<'static> {
        Of { log_id: "log", install: InstallId(ulid::Ulid(1)) }
    }

    fn recipient() -> Recipient {
        RECIPIENT.parse().unwrap()
    }

    /// Returns a runner with a recipient, and the request that recovers its keys.
    fn lost_runner() -> (InstallKeys, Request) {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        let keys = seed::open_or_create(&data, false).unwrap();
        add(&data, &keys, &of(), &recipient()).unwrap();
        let wrapped = find(&data, &recipient()).unwrap().unwrap();
        let identity = RecoveryIdentity::parse(SECRET).unwrap();
        let fingerprint = keys.public().fingerprint(&of());
        (keys, Request { wrapped, identity, install: of().install, fingerprint })
    }

    #[test]
    fn a_new_host_recovers_the_keys_and_starts_disabled() {
        let (keys, request) = lost_runner();
        let dir = tempfile::tempdir().unwrap();
        let open = || -> anyhow::Result<Data> { Ok(Data::open(dir.path())?) };
        assert_eq!(recover(&request, open).unwrap().public(), keys.public());
        let data = Data::open(dir.path()).unwrap();
        assert_eq!(seed::open_or_create(&data, false).unwrap().public(), keys.public());
        let reason = disable::disabled(&data).unwrap().reason;
        assert!(reason.contains("unproved"), "{reason}");
        // A second recovery would replace the keys of a runner.
        let before = fs::read(data.path("keys/install")).unwrap();
        let error = recover(&request, open).unwrap_err().to_string();
        assert!(error.contains("belongs to a runner"), "{error}");
        assert_eq!(fs::read(data.path("keys/install")).unwrap(), before);
    }

    #[test]
    fn a_refused_seed_changes_nothing() {
        let (_, good) = lost_runner();
        let (_, other) = lost_runner();
        let wrong_key = RecoveryIdentity::parse(OTHER).unwrap();
        let cases = [
            (Request { identity: wrong_key, ..lost_runner().1 }, "wrong recovery key"),
            (Request { install: InstallId(ulid::Ulid(2)), ..lost_runner().1 }, "another install"),
            (Request { wrapped: other.wrapped, ..good }, "the expected fingerprint"),
        ];
        for (request, name) in cases {
            let error = recover(&request, || bail!("opened the directory")).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(name), "{name}: {error}");
        }
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
        for number in 1..MAX_RECIPIENTS {
            fs::copy(&file, file.with_file_name(format!("{number}.json"))).unwrap();
        }
        assert!(remove(&data, &recipient()).unwrap());
        assert!(!remove(&data, &recipient()).unwrap());
        add(&data, &keys, &of(), &recipient()).unwrap();
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
