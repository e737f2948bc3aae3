//! Files in git LFS: reads their pointers, fetches their content with git-lfs, and verifies it.
//!
//! git-lfs takes its server from the address of the repository and its credentials from the git
//! configuration of the agent's user. `.lfsconfig` of the repository has no effect, because the bare
//! repository has no checked-out commit.

use std::{
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use super::{
    command::{Git, GitError},
    repository::Disk,
};
use crate::plugins::{
    contract::Sink,
    plugin::{Halt, IoContext as _},
};

/// First line of a pointer.
const START: &str = "version https://git-lfs.github.com/spec/v1\n";
/// Number of bytes in which a complete pointer fits.
const POINTER_LIMIT: u64 = 1024;
/// Size that other files of git-lfs may have, for example its logs, in bytes.
const OWN_FILES: u64 = 1 << 20;
/// Number of bytes of the content that are in memory at once.
const CHUNK: usize = 64 << 10;
const REMEDY: &str =
    "commit the file itself, or pass a local copy of the repository: --source REPO=PATH";

/// Pointer to the content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pointer {
    text: String,
    /// SHA-256 digest of the content, in hexadecimal digits.
    digest: String,
    /// Size of the content in bytes.
    pub size: u64,
}

impl Pointer {
    /// Parses a pointer. One with extensions is malformed, because its digest is not that of the
    /// content in the repository's server.
    fn parse(text: &str) -> Option<Pointer> {
        let mut lines = text.strip_prefix(START)?.lines();
        let digest = lines.next()?.strip_prefix("oid sha256:")?;
        let size = lines.next()?.strip_prefix("size ")?.parse().ok()?;
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digest.len() != 64 || !digest.bytes().all(is_digit) || lines.next().is_some() {
            return None;
        }
        Some(Pointer { text: text.to_owned(), digest: digest.to_owned(), size })
    }

    /// Reads the pointer in a blob. Returns `None` if the blob is the content itself.
    pub(super) fn read(path: &str, blob: &Path) -> Result<Option<Pointer>, Halt> {
        let reading = || format!("cannot read {path}");
        let mut bytes = Vec::new();
        let file = File::open(blob).doing(reading)?;
        file.take(POINTER_LIMIT).read_to_end(&mut bytes).doing(reading)?;
        if !bytes.starts_with(START.as_bytes()) {
            return Ok(None);
        }
        let pointer = std::str::from_utf8(&bytes).ok().and_then(Pointer::parse);
        let malformed = || failure(path, &format!("its pointer is malformed; {REMEDY}"));
        Ok(Some(pointer.ok_or_else(malformed)?))
    }

    /// Fetches the content into a file of git, which the next command overwrites.
    pub(super) async fn fetch(
        &self,
        git: &mut Git<'_, '_>,
        path: &str,
        disk: &mut Disk,
        sink: &mut dyn Sink,
    ) -> Result<PathBuf, Halt> {
        if !git.has_program("git-lfs") {
            let why = "git-lfs is not on the PATH of this build runner; install git-lfs";
            return Err(failure(path, &format!("{why}, {REMEDY}")));
        }
        // git-lfs keeps a copy of the content beside its output.
        disk.add(self.size.saturating_mul(2))?;
        git.limit_files(self.size.saturating_add(OWN_FILES));
        let smudge = ["lfs", "smudge", "--", path];
        let output = git.output_file(&smudge, Some(self.text.as_bytes()), sink).await;
        let what = format!("{path}:1: cannot fetch the content of the file from git LFS");
        let file = output.map_err(|error: GitError| error.into_halt(&what))?;
        self.verify(path, &file)?;
        Ok(file)
    }

    /// Compares size and digest of the content with the pointer. The output of git-lfs may also be
    /// the pointer, for example if its configuration excludes the path.
    fn verify(&self, path: &str, file: &Path) -> Result<(), Halt> {
        let reading = || format!("cannot read {path}");
        let size = fs::metadata(file).doing(reading)?.len();
        let mut hash = Sha256::new();
        if size == self.size {
            let mut content = File::open(file).doing(reading)?;
            let mut chunk = vec![0; CHUNK];
            loop {
                let count = content.read(&mut chunk).doing(reading)?;
                if count == 0 {
                    break;
                }
                hash.update(chunk.get(..count).unwrap_or_default());
            }
            if hex::encode(hash.finalize()) == self.digest {
                return Ok(());
            }
        }
        let (digest, expected) = (&self.digest, self.size);
        let why = format!(
            "the output of git-lfs differs from the pointer, which has {expected} bytes with the digest \
             sha256:{digest}; check the LFS server and the git-lfs configuration of this build runner"
        );
        Err(failure(path, &why))
    }
}

fn failure(path: &str, why: &str) -> Halt {
    Halt::exit(1, format!("{path}:1: the content of the file is in git LFS: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_pointer_is_parsed() {
        let digest = hex::encode(Sha256::digest(b"content"));
        let text = format!("{START}oid sha256:{digest}\nsize 7\n");
        let pointer = Pointer::parse(&text).unwrap();
        assert_eq!((&pointer.digest, pointer.size), (&digest, 7));
        for malformed in [
            format!("{START}oid sha256:00\nsize 9\n"),
            format!("{START}oid sha256:{}\nsize 9\n", digest.to_uppercase()),
            format!("{START}oid sha256:{digest}\nsize -1\n"),
            format!("{START}oid sha256:{digest}\n"),
            format!("{START}ext-0-case sha256:{digest}\noid sha256:{digest}\nsize 7\n"),
            format!("{text}more\n"),
        ] {
            assert_eq!(Pointer::parse(&malformed), None, "{malformed}");
        }
    }

    #[test]
    fn a_file_without_a_pointer_is_the_content() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("model.bin");
        fs::write(&file, "content").unwrap();
        assert!(matches!(Pointer::read("model.bin", &file), Ok(None)));
        fs::write(&file, format!("{START}oid sha256:00\n")).unwrap();
        assert!(Pointer::read("model.bin", &file).is_err());
    }

    #[test]
    fn other_content_than_that_of_the_pointer_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("output");
        let digest = hex::encode(Sha256::digest(b"content"));
        let text = format!("{START}oid sha256:{digest}\nsize 7\n");
        let pointer = Pointer::parse(&text).unwrap();
        for (output, is_valid) in [("content", true), ("another", false), (text.as_str(), false)] {
            fs::write(&file, output).unwrap();
            assert_eq!(pointer.verify("model.bin", &file).is_ok(), is_valid, "{output}");
        }
    }
}
