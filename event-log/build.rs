//! Lists the migrations, so that a new file under `schemas/migrations` is included automatically.
//! Also computes the digest of the source that determines the states of aggregates.
use std::{
    env, fs,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = env::var("CARGO_MANIFEST_DIR")?;
    let directory = Path::new(&root).join("../schemas/migrations");
    // Relative paths, so that a copied target directory is not rebuilt in another checkout.
    println!("cargo::rerun-if-changed=../schemas/migrations");
    let mut files = fs::read_dir(&directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "sql"));
    files.sort();
    let mut list = String::from("pub const MIGRATIONS: &[(&str, &str)] = &[\n");
    for path in files {
        let name = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .ok_or("the name of a migration file is not UTF-8")?;
        let path = path.canonicalize()?;
        list.push_str(&format!("    ({name:?}, include_str!({path:?})),\n"));
    }
    list.push_str("];\n");
    fs::write(Path::new(&env::var("OUT_DIR")?).join("migrations.rs"), list)?;

    let domain = Path::new(&root).join("../domain/src");
    println!("cargo::rerun-if-changed=../domain/src");
    let mut sources = Vec::new();
    collect(&domain, &mut sources)?;
    sources.sort();
    let mut digest = Sha256::new();
    for path in sources {
        digest.update(path.strip_prefix(&domain)?.to_string_lossy().as_bytes());
        digest.update([0]);
        digest.update(Sha256::digest(fs::read(&path)?));
    }
    println!("cargo::rustc-env=DOMAIN_SHA256={:x}", digest.finalize());
    Ok(())
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
