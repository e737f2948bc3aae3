use super::{index::LOCK, *};
use crate::{Blob, manifest::tests::manifest};

/// Stores a manifest whose blobs are missing.
fn stored(layout: &Layout, layer: &[u8]) -> Digest {
    layout.put(&manifest(layer).to_bytes().unwrap()).unwrap()
}

#[test]
fn concurrent_writers_lose_no_index_entry() {
    let dir = tempfile::tempdir().unwrap();
    let threads: Vec<_> = (0..8_u8)
        .map(|n| {
            let layout = Layout::new(dir.path());
            std::thread::spawn(move || {
                let digest = stored(&layout, &[n]);
                layout.add_to_index("shop/web", &digest).unwrap();
                layout.add_to_index("shop/web", &digest).unwrap();
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let layout = Layout::new(dir.path());
    let index = layout.index().unwrap();
    assert_eq!(index.manifests().len(), 8);
    let listed = index.manifests().iter().map(|listed| Blob::try_from(listed).unwrap());
    assert!(listed.into_iter().all(|blob| layout.has(&blob.digest)));
    assert_eq!(fs::read(dir.path().join("oci-layout")).unwrap(), MARKER);
}

#[test]
fn lock_of_another_process_is_a_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::new(dir.path());
    let digest = stored(&layout, b"x");
    let held = File::create(dir.path().join(LOCK)).unwrap();
    held.lock().unwrap();
    let listed = layout.add_to_index("shop/web", &digest);
    assert!(
        matches!(listed, Err(LayoutError::Io { reason, .. }) if reason.kind() == ErrorKind::TimedOut)
    );
    drop(held);
    layout.add_to_index("shop/web", &digest).unwrap();
}

#[test]
fn a_blob_that_was_changed_on_disk_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::new(dir.path());
    let digest = layout.put(b"good").unwrap();
    fs::write(layout.path(&digest), b"evil").unwrap();
    assert!(matches!(layout.verified(&digest), Err(LayoutError::Damaged { .. })));
}

#[test]
fn a_blob_with_a_wrong_digest_or_beyond_its_limit_is_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::new(dir.path());
    let mut writer = layout.writer(4).unwrap();
    writer.append(b"evil").unwrap();
    let finished = writer.finish(Some(&sha256(b"good")));
    assert!(matches!(finished, Err(LayoutError::WrongDigest { .. })));
    let mut writer = layout.writer(4).unwrap();
    writer.append(b"goo").unwrap();
    assert!(matches!(writer.append(b"ds"), Err(LayoutError::TooLarge { limit: 4 })));
    drop(writer);
    assert_eq!(fs::read_dir(layout.blobs()).unwrap().count(), 0);
    let left = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 2, "only blobs and oci-layout, no temporary file");
}

#[test]
fn an_artifact_is_complete_with_its_last_blob() {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::new(dir.path());
    let digest = stored(&layout, b"tar");
    layout.put(b"tar").unwrap();
    assert!(!layout.complete(&digest), "its config is missing");
    layout.put(b"{}").unwrap();
    assert!(layout.complete(&digest));
    assert_eq!(layout.manifest(&digest).unwrap(), manifest(b"tar"));
}

#[test]
fn a_large_blob_is_not_read_as_a_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::new(dir.path());
    let limit = usize::try_from(MANIFEST_LIMIT).unwrap();
    let digest = layout.put(&vec![b' '; limit + 1]).unwrap();
    let read = layout.manifest(&digest);
    assert!(matches!(read, Err(LayoutError::TooLarge { limit: MANIFEST_LIMIT })));
}
