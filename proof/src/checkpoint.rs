//! A signed tree head: C2SP tlog-checkpoint in a C2SP signed note, Ed25519.
//!
//! ```text
//! stead/01ARZ3NDEKTSV4RRFFQ69G5FAV      origin: which log
//! 4711                                  size: the position of the last event
//! CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2M…=   root
//! epoch 1                               raised by an operator after a restore or fail-over
//! …                                     what later versions add: signed like the rest, and not read
//!
//! — stead/01ARZ3NDEKTSV4RRFFQ69G5FAV Az3grl…
//! ```
use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

use crate::{Hash, sha256_of};

const ORIGIN: &str = "stead/";
const EPOCH: &str = "epoch ";
const DASH: &str = "— ";
/// What a signed note calls the algorithm.
pub(crate) const ED25519: u8 = 0x01;

/// What a log says it is at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The ULID that was made with the database.
    pub log_id: String,
    /// How many events there are: the position of the last.
    pub size: u64,
    /// The root of the tree over them.
    pub root: Hash,
    /// How often an operator declared that history may have been lost.
    pub epoch: u64,
}

/// Why a note is not a checkpoint that we believe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// The text is not a signed note with a checkpoint of ours.
    #[error("this is not a checkpoint: {0}")]
    Format(&'static str),
    /// None of the signatures is by a key that we know.
    #[error("the checkpoint is not signed by a known key")]
    Signature,
}

impl Checkpoint {
    /// Whose log it is: the note's first line and the name of its key.
    pub fn origin(&self) -> String {
        format!("{ORIGIN}{}", self.log_id)
    }

    /// The signed text.
    fn body(&self) -> String {
        let (origin, size, root) = (self.origin(), self.size, BASE64.encode(self.root));
        format!("{origin}\n{size}\n{root}\n{EPOCH}{}\n", self.epoch)
    }

    /// The signed note.
    pub fn sign(&self, key: &SigningKey) -> String {
        let (body, origin) = (self.body(), self.origin());
        let mut signature = key_id(&origin, &key.verifying_key()).to_vec();
        signature.extend_from_slice(&key.sign(body.as_bytes()).to_bytes());
        format!("{body}\n{DASH}{origin} {}\n", BASE64.encode(signature))
    }

    /// Read a signed note and believe it only if one of these keys signed it.
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

    /// Read a note without asking who signed it. For showing and comparing, never for believing.
    ///
    /// # Errors
    /// [`CheckpointError::Format`].
    pub fn read_unverified(note: &str) -> Result<Checkpoint, CheckpointError> {
        read(split(note)?.0)
    }
}

/// The signed text (with its last line end) and the signature lines.
fn split(note: &str) -> Result<(&str, &str), CheckpointError> {
    let end = note.rfind("\n\n").ok_or(CheckpointError::Format("no signature"))?;
    Ok((&note[..=end], &note[end + 2..]))
}

fn read(body: &str) -> Result<Checkpoint, CheckpointError> {
    use CheckpointError::Format;
    let mut lines = body.strip_suffix('\n').ok_or(Format("no line end"))?.split('\n');
    let mut line = |what| lines.next().ok_or(Format(what));
    let log_id = line("no origin")?.strip_prefix(ORIGIN).ok_or(Format("another origin"))?;
    let size = number(line("no size")?).ok_or(Format("the size is not a number"))?;
    let root = BASE64.decode(line("no root")?).map_err(|_| Format("the root is not base64"))?;
    let root = root.try_into().map_err(|_| Format("the root is not 32 bytes"))?;
    let epoch = line("no epoch")?.strip_prefix(EPOCH).and_then(number);
    let epoch = epoch.ok_or(Format("the epoch is not a number"))?;
    let checkpoint = Checkpoint { log_id: log_id.into(), size, root, epoch };
    // What we would not write like that is not read: one checkpoint, one text. Lines of a later version may follow:
    // a runner is older than its server for years, and must go on believing it.
    let further = body.strip_prefix(&checkpoint.body()).ok_or(Format("written differently"))?;
    let is_line = |line: &str| !line.is_empty() && !line.chars().any(char::is_control);
    let further = further
        .strip_suffix('\n')
        .map_or(further.is_empty(), |lines| lines.split('\n').all(is_line));
    if further { Ok(checkpoint) } else { Err(Format("a further line is empty or no text")) }
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

/// What a signed note calls a key: the start of a hash of its name, its algorithm and its bytes.
pub(crate) fn key_id(name: &str, key: &VerifyingKey) -> [u8; 4] {
    let hash = sha256_of(&[name.as_bytes(), b"\n", &[ED25519], key.as_bytes()]);
    [hash[0], hash[1], hash[2], hash[3]]
}
