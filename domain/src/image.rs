//! References of container images, and platforms.
use std::{fmt, str::FromStr};

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::digest::Digest;

/// Component types that copy an image. Both names have the same meaning.
pub const COMPONENT_TYPES: [&str; 2] = ["container_image", "external_image"];
/// Registry of references without a host.
pub const DOCKER_HUB: &str = "docker.io";
/// Platform of an image without `platforms`.
pub const DEFAULT_PLATFORM: &str = "linux/amd64";
/// Maximum number of platforms of one image.
pub const MAX_PLATFORMS: usize = 16;

/// Longest repository with its registry, in bytes.
const MAX_REPOSITORY: usize = 255;
/// Longest tag, in bytes.
const MAX_TAG: usize = 128;

/// Image to copy, and the platforms that an app needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode, ToSchema)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImageSource {
    /// Complete reference, for example `docker.io/library/nginx:1.29`.
    pub reference: String,
    /// Platforms, as `os/architecture` or `os/architecture/variant`.
    pub platforms: Vec<String>,
}

/// Complete reference of an image: registry, repository, and a tag, a digest or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageReference {
    host: String,
    name: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// Platform of an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Platform {
    pub os: String,
    pub architecture: String,
    pub variant: Option<String>,
}

/// Invalid part of an image reference, or an invalid platform.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageReferenceError {
    #[error("{0:?} is not the name of an image; use HOST/NAME, or NAME for an image of Docker Hub")]
    Name(String),
    #[error("{0:?} has a scheme; use HOST/NAME without it")]
    Scheme(String),
    #[error("{0:?} contains a tag or a digest; write it in `tag`")]
    Tagged(String),
    #[error(
        "{0:?} is not a tag; use up to 128 letters, digits, `_`, `.` and `-`, a digest sha256:…, or TAG@sha256:…"
    )]
    Tag(String),
    #[error("{0:?} is not a platform; use OS/ARCHITECTURE, for example linux/arm64")]
    Platform(String),
}

impl ImageReference {
    /// Combines the name of an image with a tag, a digest, or both (`TAG@sha256:…`). A name without
    /// a host is an image of Docker Hub.
    ///
    /// # Errors
    /// [`ImageReferenceError`] names the invalid part.
    pub fn new(name: &str, tag: &str) -> Result<Self, ImageReferenceError> {
        let (host, path) = split_host(name)?;
        let invalid = || ImageReferenceError::Tag(tag.to_owned());
        let (tag, digest) = match (tag.split_once('@'), tag.parse::<Digest>()) {
            (Some((tag, digest)), _) => (Some(tag), Some(digest.parse().map_err(|_| invalid())?)),
            (None, Ok(digest)) => (None, Some(digest)),
            (None, Err(_)) => (Some(tag), None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(invalid());
        }
        Ok(ImageReference { host, name: path, tag: tag.map(str::to_owned), digest })
    }

    /// Host and port of the registry.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Repository without its registry.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Repository with its registry.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.host, self.name)
    }

    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.name)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

impl FromStr for ImageReference {
    type Err = ImageReferenceError;

    /// Parses a complete reference. Without a tag and a digest, the tag is `latest`.
    fn from_str(text: &str) -> Result<Self, ImageReferenceError> {
        let (before, digest) = match text.split_once('@') {
            Some((before, digest)) => (before, Some(digest)),
            None => (text, None),
        };
        let (name, tag) = match before.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            Some(_) | None => (before, None),
        };
        match (tag, digest) {
            (Some(tag), Some(digest)) => Self::new(name, &format!("{tag}@{digest}")),
            (Some(tag), None) | (None, Some(tag)) => Self::new(name, tag),
            (None, None) => Self::new(name, "latest"),
        }
    }
}

/// Splits a name into the registry and the repository in it.
fn split_host(name: &str) -> Result<(String, String), ImageReferenceError> {
    let invalid = || ImageReferenceError::Name(name.to_owned());
    if name.contains("://") {
        return Err(ImageReferenceError::Scheme(name.to_owned()));
    }
    let (host, path) = match name.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest),
        Some(_) | None => (DOCKER_HUB, name),
    };
    if path.contains(['@', ':']) {
        return Err(ImageReferenceError::Tagged(name.to_owned()));
    }
    let host = match host {
        "index.docker.io" | "registry-1.docker.io" => DOCKER_HUB,
        other => other,
    };
    let path = match host {
        DOCKER_HUB if !path.contains('/') => format!("library/{path}"),
        _ => path.to_owned(),
    };
    let fits = host.len() + 1 + path.len() <= MAX_REPOSITORY;
    if !fits || !is_host(host) || !is_repository(&path) {
        return Err(invalid());
    }
    Ok((host.to_owned(), path))
}

/// Returns true for the host of a registry: a name or an IPv4 address, and an optional port.
pub fn is_host(text: &str) -> bool {
    let (name, port) = match text.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (text, None),
    };
    let is_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty()
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    name.len() <= 253 && name.split('.').all(is_label) && port.is_none_or(is_port)
}

/// Returns true for a repository as the OCI distribution specification defines it.
pub fn is_repository(text: &str) -> bool {
    let is_segment = |segment: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = segment.as_bytes();
        let ends =
            bytes.first().is_some_and(|b| plain(*b)) && bytes.last().is_some_and(|b| plain(*b));
        // Between two letters or digits: `.`, `_`, `__`, or any number of `-`.
        let separators = segment.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        let is_separator = |text: &str| {
            matches!(text, "" | "." | "_" | "__") || text.bytes().all(|byte| byte == b'-')
        };
        ends && separators.into_iter().all(is_separator)
    };
    text.len() <= MAX_REPOSITORY && text.split('/').all(is_segment)
}

/// Returns true for a tag as the OCI distribution specification defines it.
pub fn is_tag(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let inner = |byte: u8| plain(byte) || matches!(byte, b'.' | b'-');
    let starts = text.bytes().next().is_some_and(plain);
    starts && text.len() <= MAX_TAG && text.bytes().all(inner)
}

impl Platform {
    /// Returns true if an image for `other` runs on this platform. A platform without a variant
    /// accepts every variant, and the variant `v8` of `arm64` is its default.
    pub fn accepts(&self, other: &Platform) -> bool {
        let variant = |of: &Platform| match (of.architecture.as_str(), of.variant.as_deref()) {
            ("arm64", Some("v8")) => None,
            (_, variant) => variant.map(str::to_owned),
        };
        let wanted = variant(self);
        (&self.os, &self.architecture) == (&other.os, &other.architecture)
            && (wanted.is_none() || wanted == variant(other))
    }
}

impl FromStr for Platform {
    type Err = ImageReferenceError;

    fn from_str(text: &str) -> Result<Self, ImageReferenceError> {
        let is_part = |part: &&str| {
            let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            (1..=32).contains(&part.len()) && part.bytes().all(plain)
        };
        let parts: Vec<&str> = text.split('/').filter(is_part).collect();
        let (os, architecture, variant) = match parts.as_slice() {
            [os, architecture] => (os, architecture, None),
            [os, architecture, variant] => (os, architecture, Some((*variant).to_owned())),
            _ => return Err(ImageReferenceError::Platform(text.to_owned())),
        };
        let platform = Platform { os: (*os).into(), architecture: (*architecture).into(), variant };
        match platform.to_string() == text {
            true => Ok(platform),
            false => Err(ImageReferenceError::Platform(text.to_owned())),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
