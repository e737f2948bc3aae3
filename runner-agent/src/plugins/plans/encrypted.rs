//! Encryption of a waiting plan file with the keys of its component.
//!
//! A job without keys stores the file in clear: only a plugin that the tests start has none.
use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use domain::{digest::Digest, ids::JobId};
use oci_layout::{sha256, sha256_file};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{
    super::{
        contract::PluginError,
        plugin::{IoContext, Work},
        work::write_private,
    },
    copy_private, open_regular,
};
use crate::{data, state::Cipher};

const PLAN: &str = "plan";
const ENCRYPTED: &str = "encrypted";
/// Decrypted plan file in the work directory of the apply.
const APPROVED: &str = "approved-plan";

/// Expected associated data of a decryption.
#[derive(Serialize, Deserialize)]
struct Encrypted {
    job: JobId,
    file: Digest,
}

/// Stores a plan file in `dir`, and returns the digest of the file.
pub(super) fn store(work: &Work<'_>, from: &Path, dir: &Path) -> Result<Digest, PluginError> {
    let to = dir.join(PLAN);
    let Some(cipher) = cipher(work) else { return copy_private(from, &to) };
    let context = || "cannot encrypt a plan".to_owned();
    // A copy in the work directory could be replaced by a plugin that still runs.
    let mut plan = Zeroizing::new(Vec::new());
    open_regular(from)?.read_to_end(&mut plan).doing(context)?;
    let (job, file) = (work.job.job, sha256(&plan));
    let ciphertext = cipher.encrypt_plan(job, &file, &plan).doing(context)?;
    write_private(&to, &ciphertext)?;
    let expected = serde_json::to_vec(&Encrypted { job, file: file.clone() });
    write_private(&dir.join(ENCRYPTED), &expected.map_err(io::Error::from).doing(context)?)?;
    Ok(file)
}

/// Keys of the component. A sync of an image has no state, but it reads the plan.
fn cipher(work: &Work<'_>) -> Option<Cipher> {
    work.job.state.as_ref().and_then(|state| state.keys.component(work.name))
}

fn expected(dir: &Path) -> io::Result<Option<Encrypted>> {
    data::read_json(&dir.join(ENCRYPTED))
}

/// Returns true if a runner without keys stored the plan in clear, and this job has keys.
pub(super) fn is_of_earlier_version(work: &Work<'_>, dir: &Path) -> bool {
    cipher(work).is_some() && !dir.join(ENCRYPTED).exists()
}

/// Returns the digest of the plan file as it was recorded.
pub(super) fn recorded_digest(dir: &Path) -> io::Result<Digest> {
    match expected(dir)? {
        Some(expected) => Ok(expected.file),
        None => sha256_file(&dir.join(PLAN)),
    }
}

/// Returns the digest of the plan file, which is complete and unchanged.
pub(super) fn digest(work: &Work<'_>, dir: &Path) -> io::Result<Digest> {
    match expected(dir)? {
        Some(expected) => Ok(sha256(&decrypt(work, dir, &expected)?)),
        None => sha256_file(&dir.join(PLAN)),
    }
}

/// Returns the path of the plan file in clear, with its digest.
pub(super) fn read(work: &Work<'_>, dir: &Path) -> io::Result<(PathBuf, Digest)> {
    let Some(expected) = expected(dir)? else {
        let path = dir.join(PLAN);
        let digest = sha256_file(&path)?;
        return Ok((path, digest));
    };
    let plan = decrypt(work, dir, &expected)?;
    let path = work.job.work_dir.join(APPROVED);
    data::replace(&path, &plan)?;
    Ok((path, sha256(&plan)))
}

fn decrypt(work: &Work<'_>, dir: &Path, expected: &Encrypted) -> io::Result<Zeroizing<Vec<u8>>> {
    let ciphertext = fs::read(dir.join(PLAN))?;
    let cipher = cipher(work);
    let cipher = cipher.ok_or_else(|| io::Error::other("this job has no keys for its plan"))?;
    cipher.decrypt_plan(expected.job, &expected.file, &ciphertext).map_err(io::Error::other)
}
