//! Signed tree heads: C2SP tlog-checkpoint in a C2SP signed note, Ed25519.
//!
//! ```text
//! stead/01ARZ3NDEKTSV4RRFFQ69G5FAV      origin: id of the log
//! 4711                                  size: position of the last event
//! CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2M…=   root
//! epoch 1                               raised by an operator after a restore or fail-over
//! …                                     lines of later versions, signed but ignored by this version
//!
//! — stead/01ARZ3NDEKTSV4RRFFQ69G5FAV Az3grl…
//! ```
use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

use crate::{Hash, sha256_of};

const ORIGIN: &str = "stead/";
const EPOCH: &str = "epoch ";
const DASH: &str = "— ";
/// Code of the Ed25519 algorithm in a signed note.
pub(crate) const ED25519: u8 = 0x01;

/// Head of a log at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// ULID of the log, generated with the database.
    pub log_id: String,
    /// Number of events, which is the position of the last event.
    pub size: u64,
    /// Root of the tree over all events.
    pub root: Hash,
    /// Epoch of the log. Only an operator raises it, after a possible loss of history.
    pub epoch: u64,
}

/// Reason to reject a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// The text is not a signed note with a Stead checkpoint.
    #[error("invalid checkpoint: {0}")]
    Format(&'static str),
    /// No signature belongs to a trusted key.
    #[error("the checkpoint is not signed by a known key")]
    Signature,
}

impl Checkpoint {
    /// Returns the origin of the log: the note's first line, and the name of its key.
    pub fn origin(&self) -> String {
        format!("{ORIGIN}{}", self.log_id)
    }

    /// Returns the signed text.
    fn body(&self) -> String {
        let (origin, size, root) = (self.origin(), self.size, BASE64.encode(self.root));
        format!("{origin}\n{size}\n{root}\n{EPOCH}{}\n", self.epoch)
    }

    /// Returns the signed note.
    pub fn sign(&self, key: &SigningKey) -> String {
        let (body, origin) = (self.body(), self.origin());
        let mut signature = key_id(&origin, &key.verifying_key()).to_vec();
        signature.extend_from_slice(&key.sign(body.as_bytes()).to_bytes());
        format!("{body}\n{DASH}{origin} {}\n", BASE64.encode(signature))
    }

    /// Parses a signed note, and accepts it only if one of these keys signed it.
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub fn open(note: &str, keys: &[VerifyingKey]) -> Result<Checkpoint, CheckpointError> {
        let (body, signatures) = split(note)?;
        let checkpoint = read(body)?;
        let origin = checkpoint.origin();
        let signed = signatures.lines().filter_map(|line| signature_of(line, &origin)).any(
            |(id, signature)| {
                keys.iter().any(|key| {
                    key_id(&origin, key) == id
                        && key.verify_strict(body.as_bytes(), &signature).is_ok()
                })
            },
        );
        if signed { Ok(checkpoint) } else { Err(CheckpointError::Signature) }
    }

    /// Parses a note without a check of its signatures. Use the result for display and comparison
    /// only.
    ///
    /// # Errors
    /// [`CheckpointError::Format`].
    pub fn read_unverified(note: &str) -> Result<Checkpoint, CheckpointError> {
        read(split(note)?.0)
    }
}

/// Splits a note into the signed text, with its last line feed, and the signature lines.
fn split(note: &str) -> Result<(&str, &str), CheckpointError> {
    let end = note.rfind("\n\n").ok_or(CheckpointError::Format("no signature"))?;
    Ok((&note[..=end], &note[end + 2..]))
}

fn read(body: &str) -> Result<Checkpoint, CheckpointError> {
    use CheckpointError::Format;
    let mut lines = body.strip_suffix('\n').ok_or(Format("no final line feed"))?.split('\n');
    let mut line = |what| lines.next().ok_or(Format(what));
    let log_id = line("no origin")?.strip_prefix(ORIGIN).ok_or(Format("unknown origin"))?;
    let size = number(line("no size")?).ok_or(Format("the size is not a number"))?;
    let root = BASE64.decode(line("no root")?).map_err(|_| Format("the root is not base64"))?;
    let root = root.try_into().map_err(|_| Format("the root does not have 32 bytes"))?;
    let epoch = line("no epoch")?.strip_prefix(EPOCH).and_then(number);
    let epoch = epoch.ok_or(Format("the epoch is not a number"))?;
    let checkpoint = Checkpoint { log_id: log_id.into(), size, root, epoch };
    // Each checkpoint has exactly one encoding, so other encodings are rejected. Further lines are
    // accepted: a runner can be years older than the server and must still accept new checkpoints.
    let further =
        body.strip_prefix(&checkpoint.body()).ok_or(Format("not in the canonical encoding"))?;
    let is_line = |line: &str| !line.is_empty() && !line.chars().any(char::is_control);
    let further = further
        .strip_suffix('\n')
        .map_or(further.is_empty(), |lines| lines.split('\n').all(is_line));
    if further {
        Ok(checkpoint)
    } else {
        Err(Format("a further line is empty or has control characters"))
    }
}

fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = digits && (text == "0" || !text.starts_with('0'));
    if canonical { text.parse().ok() } else { None }
}

fn signature_of(line: &str, origin: &str) -> Option<([u8; 4], Signature)> {
    let (name, encoded) = line.strip_prefix(DASH)?.split_once(' ')?;
    let bytes = BASE64.decode(encoded).ok()?;
    let (id, signature) = bytes.split_at_checked(4)?;
    let signature = Signature::from_slice(signature).ok()?;
    (name == origin).then_some((id.try_into().ok()?, signature))
}

/// Returns the key id for a signed note: the first bytes of a hash of the name, the algorithm and
/// the key.
pub(crate) fn key_id(name: &str, key: &VerifyingKey) -> [u8; 4] {
    let hash = sha256_of(&[name.as_bytes(), b"\n", &[ED25519], key.as_bytes()]);
    [hash[0], hash[1], hash[2], hash[3]]
}
