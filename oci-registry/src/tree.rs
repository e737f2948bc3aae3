//! Tree of an image: the documents and blobs that a copy consists of.

use std::collections::BTreeMap;

use bytes::Bytes;
use domain::{
    digest::Digest,
    image::{ImageReference, Platform},
};
use oci_layout::{
    ArtifactManifest, Blob, Document, ImageList, ListedImage, image::MediaType, sha256,
};
use serde::Deserialize;

use super::{Endpoint, RegistryError, blob::BlobReader, document::Received};

/// Largest number of blobs of one image, over all platforms.
const MAX_BLOBS: usize = 2_000;
/// Largest number of manifests of one image.
const MAX_MANIFESTS: usize = domain::image::MAX_PLATFORMS;
/// Largest size of an image in bytes, over all platforms.
const MAX_BYTES: u64 = 256 << 30;
/// Largest size of the config of an image in bytes.
const MAX_CONFIG: u64 = 4 << 20;

/// Manifest or list with its bytes.
#[derive(Debug, Clone)]
pub struct TreeDocument {
    pub digest: Digest,
    pub media_type: String,
    pub bytes: Bytes,
}

/// Image with everything that it consists of.
#[derive(Debug)]
pub struct Tree {
    /// The manifests, and after them the list of an image with several platforms.
    pub documents: Vec<TreeDocument>,
    /// Blobs of all manifests, each once.
    pub blobs: Vec<Blob>,
    /// Digest of the last document, which is that of the image.
    pub digest: Digest,
}

/// Platform in the config of an image.
#[derive(Deserialize)]
struct Config {
    os: String,
    architecture: String,
    #[serde(default)]
    variant: Option<String>,
}

/// Reads an image by its reference, with only these platforms. Returns the digest of the reference
/// with the tree. The tag is resolved once, and everything else is read by digest.
///
/// # Errors
/// The registry is unreachable or refuses a request, or the image exceeds a limit or does not have a
/// platform.
pub async fn resolve(
    endpoint: &Endpoint,
    name: &str,
    reference: &ImageReference,
    platforms: &[Platform],
) -> Result<(Digest, Tree), RegistryError> {
    let digest = reference.digest().map(ToString::to_string);
    let named = digest.as_deref().or(reference.tag()).unwrap_or("latest");
    let top = endpoint.document(name, named).await?;
    let upstream = top.digest.clone();
    let unavailable = |missing: String, available: Vec<String>| RegistryError::NoPlatform {
        reference: reference.to_string(),
        missing,
        available: match available.is_empty() {
            true => "none with a platform".into(),
            false => available.join(", "),
        },
    };
    match &top.document {
        Document::Manifest(manifest) => {
            let own = platform_of(endpoint, name, manifest).await?;
            if let Some(missing) = platforms.iter().find(|wanted| !wanted.accepts(&own)) {
                return Err(unavailable(missing.to_string(), vec![own.to_string()]));
            }
            Ok((upstream, Tree::of(endpoint, vec![top])?))
        }
        Document::List(list) => {
            let found = select(list, platforms).map_err(|missing| {
                let all = list.images().iter().filter_map(|image| image.platform.as_ref());
                unavailable(missing.to_string(), all.map(ToString::to_string).collect())
            })?;
            let mut received = manifests(endpoint, name, &found).await?;
            // An image for one platform is its manifest, with the digest and the signatures of
            // upstream.
            if let [_, _, ..] = received.as_slice() {
                received.push(reduced(endpoint, &top, list, &found)?);
            }
            Ok((upstream, Tree::of(endpoint, received)?))
        }
    }
}

/// Reads a whole image by digest.
///
/// # Errors
/// The registry is unreachable or refuses a request, or the image exceeds a limit.
pub async fn fetch(
    endpoint: &Endpoint,
    name: &str,
    digest: &Digest,
) -> Result<Tree, RegistryError> {
    let top = endpoint.document(name, &digest.to_string()).await?;
    let received = match &top.document {
        Document::Manifest(_) => vec![top],
        Document::List(list) => {
            let all: Vec<_> = list.images().iter().collect();
            let mut received = manifests(endpoint, name, &all).await?;
            received.push(top);
            received
        }
    };
    Tree::of(endpoint, received)
}

/// Returns the images of a list for these platforms, in the order of the list. The error is a
/// platform without an image.
fn select<'l>(
    list: &'l ImageList,
    platforms: &[Platform],
) -> Result<Vec<&'l ListedImage>, Platform> {
    let found = platforms.iter().map(|wanted| list.image_for(wanted).ok_or_else(|| wanted.clone()));
    let found = found.collect::<Result<Vec<_>, _>>()?;
    let is_selected = |image: &&ListedImage| found.contains(image);
    Ok(list.images().iter().filter(is_selected).collect())
}

async fn manifests(
    endpoint: &Endpoint,
    name: &str,
    images: &[&ListedImage],
) -> Result<Vec<Received>, RegistryError> {
    if images.len() > MAX_MANIFESTS {
        let why = format!("it has {} images, more than {MAX_MANIFESTS}", images.len());
        return Err(endpoint.invalid(name, why));
    }
    let mut received = vec![];
    for image in images {
        let digest = image.blob.digest.to_string();
        let manifest = endpoint.document(name, &digest).await?;
        if matches!(manifest.document, Document::List(_)) {
            return Err(
                endpoint.invalid(&digest, "it is a nested index, which is not supported".into())
            );
        }
        received.push(manifest);
    }
    Ok(received)
}

/// Returns the list with only these images. With all of them, the list is unchanged.
fn reduced(
    endpoint: &Endpoint,
    top: &Received,
    list: &ImageList,
    images: &[&ListedImage],
) -> Result<Received, RegistryError> {
    let (bytes, document) = match images.len() == list.images().len() {
        true => (top.bytes.clone(), top.document.clone()),
        false => {
            let invalid = |error| endpoint.invalid("the index", format!("{error}"));
            let bytes = list.with_only(images).map_err(invalid)?;
            let document = Document::parse(&bytes).map_err(invalid)?;
            (Bytes::from(bytes), document)
        }
    };
    Ok(Received { digest: sha256(&bytes), bytes, document })
}

/// Reads the platform of an image without a list from its config.
async fn platform_of(
    endpoint: &Endpoint,
    name: &str,
    manifest: &ArtifactManifest,
) -> Result<Platform, RegistryError> {
    let invalid = |why: String| endpoint.invalid(name, why);
    let config = manifest.config();
    if config.size > MAX_CONFIG {
        return Err(invalid(format!("its config exceeds {MAX_CONFIG} bytes")));
    }
    let mut reader = BlobReader::new(endpoint, name, config);
    let mut bytes = Vec::new();
    while let Some(chunk) = reader.next().await? {
        bytes.extend_from_slice(&chunk);
    }
    let no_image = "it is not a container image: its config names no platform";
    let config: Config = serde_json::from_slice(&bytes).map_err(|_| invalid(no_image.into()))?;
    let variant = config.variant.filter(|variant| !variant.is_empty());
    Ok(Platform { os: config.os, architecture: config.architecture, variant })
}

impl Tree {
    /// Returns the tree of an artifact with one manifest.
    ///
    /// # Errors
    /// The manifest cannot be serialized.
    pub fn of_manifest(manifest: &ArtifactManifest) -> Result<Tree, RegistryError> {
        let bytes = manifest.to_bytes().map_err(|error| {
            let (host, what) = ("this host".to_owned(), "the manifest".to_owned());
            RegistryError::Invalid { host, what, why: error.to_string() }
        })?;
        let blobs: BTreeMap<_, _> =
            manifest.blobs().map(|blob| (blob.digest.clone(), blob.clone())).collect();
        let (digest, media_type) = (sha256(&bytes), MediaType::ImageManifest.to_string());
        let document = TreeDocument { digest: digest.clone(), media_type, bytes: bytes.into() };
        Ok(Tree { documents: vec![document], blobs: blobs.into_values().collect(), digest })
    }

    fn of(endpoint: &Endpoint, received: Vec<Received>) -> Result<Tree, RegistryError> {
        let mut blobs = BTreeMap::new();
        for document in &received {
            let Document::Manifest(manifest) = &document.document else { continue };
            let invalid = |why: String| endpoint.invalid(&document.digest.to_string(), why);
            for blob in manifest.blobs() {
                let media_type = blob.media_type.to_string();
                if media_type.contains("nondistributable") || media_type.contains(".foreign.") {
                    return Err(invalid(
                        "it has a non-distributable layer, which cannot be copied".into(),
                    ));
                }
                let known = blobs.entry(blob.digest.clone()).or_insert_with(|| blob.clone());
                if known.size != blob.size {
                    return Err(invalid(format!("it states two sizes of {}", blob.digest)));
                }
            }
            if blobs.len() > MAX_BLOBS {
                return Err(invalid(format!("it has more than {MAX_BLOBS} blobs")));
            }
        }
        let blobs: Vec<Blob> = blobs.into_values().collect();
        let size = blobs.iter().fold(0_u64, |size, blob| size.saturating_add(blob.size));
        let what = received.last().map(|top| top.digest.clone());
        let Some(digest) = what else {
            return Err(endpoint.invalid("the image", "it has no manifest".into()));
        };
        if size > MAX_BYTES {
            let why = format!("it has {size} bytes, more than {MAX_BYTES}");
            return Err(endpoint.invalid(&digest.to_string(), why));
        }
        let document = |received: Received| TreeDocument {
            media_type: received.document.media_type().to_string(),
            digest: received.digest,
            bytes: received.bytes,
        };
        Ok(Tree { documents: received.into_iter().map(document).collect(), blobs, digest })
    }

    /// Total bytes of documents and blobs.
    pub fn size(&self) -> u64 {
        let documents = self.documents.iter().map(|document| document.bytes.len() as u64);
        documents.chain(self.blobs.iter().map(|blob| blob.size)).fold(0, u64::saturating_add)
    }
}
