//! Record of the vendor's registries in the data directory, one location per line. Events name an
//! artifact only by its repository and digest, so the artifacts of earlier builds are not found after
//! a change.
use std::{collections::BTreeSet, fs, io, io::Write as _, path::Path};

use oci_registry::VendorLocation;
use tracing::warn;

/// File in the directory of the registry.
const FILE: &str = ".vendor";

/// Records the registry, and warns at each start about the others that earlier builds used.
pub(in crate::registry) fn record(
    directory: &Path,
    location: Option<&VendorLocation>,
) -> io::Result<()> {
    let file = directory.join(FILE);
    let mut known = match fs::read_to_string(&file) {
        Ok(text) => text.lines().map(str::to_owned).collect(),
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
        Err(error) => return Err(error),
    };
    let location = location.map(ToString::to_string);
    for former in known.iter().filter(|known| Some(*known) != location.as_ref()) {
        warn!("{}", warning(former, location.as_deref(), &file));
    }
    if location.is_some_and(|location| known.insert(location)) {
        write(directory, &file, &known)?;
    }
    Ok(())
}

/// Replaces the file, because several servers may read it.
fn write(directory: &Path, file: &Path, known: &BTreeSet<String>) -> io::Result<()> {
    let mut part = tempfile::NamedTempFile::new_in(directory)?;
    for location in known {
        writeln!(part, "{location}")?;
    }
    part.as_file().sync_all()?;
    part.persist(file)?;
    fs::File::open(directory)?.sync_all()
}

fn warning(former: &str, location: Option<&str>, file: &Path) -> String {
    let (set, remedy) = match location {
        Some(location) => {
            (format!("--registry is {location}"), "copy its repositories to the new registry")
        }
        None => ("--registry is not set".to_owned(), "set it"),
    };
    format!(
        "Earlier builds pushed to {former}, but {set}: installs cannot deploy artifacts that only {former} has; {remedy}, or build the components again; then delete its line in {}",
        file.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_location_is_recorded_until_a_user_deletes_it() {
        let dir = tempfile::tempdir().unwrap();
        let recorded = |text: Option<&str>| {
            let location = text.map(|text| text.parse::<VendorLocation>().unwrap());
            record(dir.path(), location.as_ref()).unwrap();
            fs::read_to_string(dir.path().join(FILE)).unwrap_or_default()
        };
        assert_eq!(recorded(None), "");
        assert_eq!(recorded(Some("oci://b.example/x")), "oci://b.example/x\n");
        assert_eq!(recorded(None), "oci://b.example/x\n");
        let both = "oci://a.example/x\noci://b.example/x\n";
        assert_eq!(recorded(Some("oci://a.example/x")), both);
        assert_eq!(recorded(Some("oci://b.example/x")), both);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_warning_names_the_remedy() {
        let text = |location| warning("oci://a.example/x", location, Path::new("f"));
        let changed = text(Some("oci://b.example/x"));
        assert!(changed.contains("but --registry is oci://b.example/x: installs cannot deploy"));
        assert!(changed.ends_with("then delete its line in f"));
        assert!(text(None).contains("--registry is not set: installs cannot deploy"));
    }
}
