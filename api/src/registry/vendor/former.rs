//! Record of the vendor's registry in the data directory. Events name an artifact only by its
//! repository and digest, so the artifacts of earlier builds are not found after a change.
use std::{fs, io, path::Path};

use oci_registry::VendorLocation;
use tracing::warn;

/// File in the directory of the registry.
const FILE: &str = ".vendor";

/// Records the registry, and warns if earlier builds used another one.
pub(in crate::registry) fn record(
    directory: &Path,
    location: Option<&VendorLocation>,
) -> io::Result<()> {
    let file = directory.join(FILE);
    let former = match fs::read_to_string(&file) {
        Ok(former) => Some(former.trim().to_owned()),
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let location = location.map(ToString::to_string);
    if let Some(warning) = warning(former.as_deref(), location.as_deref(), &file) {
        warn!("{warning}");
    }
    match location {
        Some(location) if former.as_ref() != Some(&location) => fs::write(&file, location),
        Some(_) | None => Ok(()),
    }
}

fn warning(former: Option<&str>, location: Option<&str>, file: &Path) -> Option<String> {
    let former = former.filter(|former| Some(*former) != location)?;
    Some(match location {
        Some(location) => format!(
            "The registry of builds changed from {former} to {location}: installs cannot deploy artifacts that only {former} has; copy its repositories to {location}, or build the components again"
        ),
        None => format!(
            "Earlier builds pushed to {former}, but the option --registry is not set: installs cannot deploy these artifacts; set it, or build the components again and delete {}",
            file.display()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_registry_is_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let recorded = |text: Option<&str>| {
            let location = text.map(|text| text.parse::<VendorLocation>().unwrap());
            record(dir.path(), location.as_ref()).unwrap();
            fs::read_to_string(dir.path().join(FILE)).ok()
        };
        assert_eq!(recorded(None), None);
        assert_eq!(recorded(Some("oci://a.example/x")).as_deref(), Some("oci://a.example/x"));
        // Without the option, each start warns.
        assert_eq!(recorded(None).as_deref(), Some("oci://a.example/x"));
        assert_eq!(recorded(Some("oci://b.example/x")).as_deref(), Some("oci://b.example/x"));
    }

    #[test]
    fn only_a_change_is_a_warning() {
        let (a, b, file) = (Some("oci://a.example/x"), Some("oci://b.example/x"), Path::new("f"));
        let text = |former, location| warning(former, location, file);
        assert!(text(a, b).unwrap().contains("from oci://a.example/x to oci://b.example/x"));
        assert!(text(a, None).unwrap().contains("--registry is not set"));
        assert_eq!([text(a, a), text(None, a), text(None, None)], [None, None, None]);
    }
}
