//! Packs executables into a signed plugin artifact: an OCI index with one manifest per platform.
use std::path::{Path, PathBuf};

use bytes::Bytes;
use domain::digest::Digest;
use ed25519_dalek::SigningKey;
use oci_layout::{
    ArtifactManifest, Blob, EMPTY, PlatformIndex,
    image::{ImageManifestBuilder, MediaType, SCHEMA_VERSION},
};
use schemas::plugin::artifact::{
    ARTIFACT_TYPE, ENVELOPE_TYPE, EXECUTABLE_LIMIT, EXECUTABLE_TYPE, PluginStatement,
    host_platform, is_platform, is_version,
};

use super::describe::{self, failure};
use crate::failure::Failure;

/// Executable for one platform.
#[derive(Debug, Clone)]
pub struct Executable {
    /// Platform as `os/architecture`. `None` selects the platform in the header of the executable,
    /// or else that of this host.
    pub platform: Option<String>,
    pub path: PathBuf,
}

/// Signed artifact of a plugin.
#[derive(Debug)]
pub struct PackedPlugin {
    pub name: String,
    pub version: String,
    /// Digest of the index.
    pub digest: Digest,
    /// Public key of the publisher, 64 hexadecimal digits.
    pub publisher: String,
    /// Every blob of the artifact with its digest; the index is the last one.
    pub blobs: Vec<(Digest, Bytes)>,
}

/// Packs and signs the executables of one plugin. One of them must run on this host, because it
/// reports name and version.
///
/// # Errors
/// An executable cannot be read or run, or the executables do not belong together.
pub async fn pack(executables: &[Executable], key: &SigningKey) -> Result<PackedPlugin, Failure> {
    pack_as(executables, key, |version, _| version.to_owned()).await
}

/// Packs like [`pack`]. `version` returns the published version. Its arguments are the version that
/// the executable for this host reports, and a digest of all executables and the publisher's key.
///
/// # Errors
/// Those of [`pack`].
pub async fn pack_as(
    executables: &[Executable],
    key: &SigningKey,
    version: impl Fn(&str, &Digest) -> String,
) -> Result<PackedPlugin, Failure> {
    let mut files = Vec::new();
    for Executable { platform, path } in executables {
        let bytes = tokio::fs::read(path).await.map_err(|e| failure(path, e))?;
        if bytes.len() as u64 > EXECUTABLE_LIMIT {
            return Err(failure(path, format!("it exceeds the limit of {EXECUTABLE_LIMIT} bytes")));
        }
        let of_header = elf_platform(&bytes);
        if let (Some(given), Some(found)) = (platform, &of_header)
            && given != found
        {
            return Err(failure(
                path,
                format!("it is an executable for {found}, not for {given}; correct OS/ARCH"),
            ));
        }
        let platform = platform.clone().or(of_header).or_else(host_platform);
        let platform = platform
            .filter(|platform| is_platform(platform))
            .ok_or_else(|| failure(path, "its platform is unknown; pass OS/ARCH=PATH"))?;
        if files.iter().any(|(known, _, _)| *known == platform) {
            return Err(failure(
                path,
                format!("two executables are for {platform}; pass one executable per platform"),
            ));
        }
        files.push((platform, path, Bytes::from(bytes)));
    }
    files.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    let host = host_platform().unwrap_or_default();
    let (_, local, _) = files.iter().find(|(platform, ..)| *platform == host).ok_or_else(|| {
        Failure::Usage(format!(
            "cannot determine the name and version of the plugin: no executable is for {host}, the platform of this host\n  \
             try: pass its executable for {host} too"
        ))
    })?;
    let described = describe::describe(local).await?;
    let protocols = describe::protocols(local).await?;
    let publisher = super::key::public(key);
    let version = version(&described.version, &content_digest(&publisher, &files));
    if !is_version(&version) {
        let reason = format!(
            "its version {version:?} is not 1 to 64 letters, digits, `.`, `-`, `+` and `_`"
        );
        return Err(failure(local, reason));
    }
    let name = described.name;
    let (mut blobs, mut manifests) = (vec![(oci_layout::sha256(EMPTY), EMPTY.into())], vec![]);
    for (platform, path, executable) in files {
        let layer = Blob::of(EXECUTABLE_TYPE, &executable);
        let statement = PluginStatement {
            name: name.clone(),
            version: version.clone(),
            platform: platform.clone(),
            executable: layer.digest.clone(),
            size_bytes: layer.size,
            protocols: protocols.clone(),
        };
        let envelope = statement.sign(key).map_err(|e| failure(path, e))?;
        let signature = Blob::of(ENVELOPE_TYPE, &envelope);
        let bytes = manifest(&layer, &signature).map_err(|e| failure(path, e))?;
        let listed = Blob::of(MediaType::ImageManifest.as_ref(), &bytes);
        manifests.push((platform, listed.clone()));
        blobs.extend([
            (layer.digest, executable),
            (signature.digest, envelope.into()),
            (listed.digest, bytes.into()),
        ]);
    }
    let index = PlatformIndex::new(ARTIFACT_TYPE, manifests);
    let index = index.to_bytes().map_err(|e| Failure::Usage(e.to_string()))?;
    let digest = oci_layout::sha256(&index);
    blobs.push((digest.clone(), index.into()));
    Ok(PackedPlugin { name, version, digest, publisher, blobs })
}

/// Returns the digest of a publisher and its executables, which are sorted by platform.
fn content_digest(publisher: &str, files: &[(String, &PathBuf, Bytes)]) -> Digest {
    let lines = files.iter().map(|(platform, _, bytes)| {
        let digest = oci_layout::sha256(bytes);
        format!("{platform} {digest}\n")
    });
    let lines: String = std::iter::once(format!("{publisher}\n")).chain(lines).collect();
    oci_layout::sha256(lines.as_bytes())
}

fn manifest(executable: &Blob, envelope: &Blob) -> Result<Vec<u8>, String> {
    let image = ImageManifestBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageManifest)
        .artifact_type(ARTIFACT_TYPE)
        .config(Blob::empty().descriptor())
        .layers([executable.descriptor(), envelope.descriptor()])
        .build()
        .map_err(|error| error.to_string())?;
    let manifest = ArtifactManifest::try_from(image).map_err(|error| error.to_string())?;
    manifest.to_bytes().map_err(|error| error.to_string())
}

/// Returns the platform in the header of an ELF file.
fn elf_platform(bytes: &[u8]) -> Option<String> {
    let header = bytes.get(..20).filter(|header| header.starts_with(b"\x7fELF\x02\x01"))?;
    match u16::from_le_bytes([header[18], header[19]]) {
        62 => Some("linux/amd64".into()),
        183 => Some("linux/arm64".into()),
        _ => None,
    }
}

/// Parses `[OS/ARCHITECTURE=]PATH`.
pub(crate) fn executable(text: &str) -> Result<Executable, String> {
    match text.split_once('=') {
        Some((platform, path)) if is_platform(platform) && !path.is_empty() => {
            Ok(Executable { platform: Some(platform.into()), path: Path::new(path).into() })
        }
        _ => Ok(Executable { platform: None, path: Path::new(text).into() }),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn the_platform_is_the_given_one_or_that_of_the_header() {
        let parsed = executable("linux/arm64=./a=b").unwrap();
        assert_eq!(
            (parsed.platform.as_deref(), parsed.path),
            (Some("linux/arm64"), "./a=b".into())
        );
        let parsed = executable("./a=b").unwrap();
        assert_eq!((parsed.platform, parsed.path), (None, "./a=b".into()));
        let mut header = b"\x7fELF\x02\x01".to_vec();
        header.resize(20, 0);
        header[18] = 183;
        assert_eq!(elf_platform(&header).as_deref(), Some("linux/arm64"));
        assert_eq!(elf_platform(b"#!/bin/sh"), None);
    }

    #[tokio::test]
    async fn the_same_executables_and_key_give_the_same_artifact() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stead-plugin-odd");
        let described = r#"{"type":"result","id":1,"value":{"protocol":1,"name":"odd","version":"1.2","kinds":[]}}"#;
        fs::write(&path, format!("#!/bin/sh\necho '{described}'\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let other = Executable { platform: Some("plan9/mips".into()), path: path.clone() };
        let host = Executable { platform: None, path };
        let key = SigningKey::from_bytes(&[1; 32]);
        let packed = pack(&[host.clone(), other.clone()], &key).await.unwrap();
        assert_eq!((packed.name.as_str(), packed.version.as_str()), ("odd", "1.2"));
        let again = pack(&[other.clone(), host.clone()], &key).await.unwrap();
        assert_eq!(again.digest, packed.digest);
        for (digest, bytes) in &packed.blobs {
            assert_eq!(oci_layout::sha256(bytes), *digest);
        }
        // The digest for the version covers every executable and the key.
        let digest = async |files: &[Executable], key: &SigningKey| {
            let version = |_: &str, content: &Digest| content.to_string()["sha256:".len()..].into();
            pack_as(files, key, version).await.unwrap().version
        };
        let both = digest(&[host.clone(), other.clone()], &key).await;
        assert_eq!(both, digest(&[other.clone(), host.clone()], &key).await);
        assert_ne!(both, digest(std::slice::from_ref(&host), &key).await);
        let another = SigningKey::from_bytes(&[2; 32]);
        assert_ne!(both, digest(&[host.clone(), other.clone()], &another).await);
        let arm = dir.path().join("arm");
        let mut header = b"\x7fELF\x02\x01".to_vec();
        header.resize(20, 0);
        header[18] = 183;
        fs::write(&arm, header).unwrap();
        let wrong = Executable { platform: Some("linux/amd64".into()), path: arm };
        let wrong = pack(&[wrong], &key).await.unwrap_err();
        assert!(matches!(wrong, Failure::Usage(why) if why.contains("for linux/arm64, not for")));
        let none = pack(&[other], &key).await.unwrap_err();
        assert!(matches!(none, Failure::Usage(why) if why.contains("no executable is for")));
        assert!(pack(&[host.clone(), host], &key).await.is_err());
    }
}
