//! Lists the migrations, so that a new file under `schemas/migrations` needs no second mention.
use std::{env, fs, path::Path};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = env::var("CARGO_MANIFEST_DIR")?;
    let directory = Path::new(&root).join("../schemas/migrations");
    println!("cargo::rerun-if-changed={}", directory.display());
    let mut files = fs::read_dir(&directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "sql"));
    files.sort();
    let mut list = String::from("pub const MIGRATIONS: &[(&str, &str)] = &[\n");
    for path in files {
        let name =
            path.file_stem().and_then(|stem| stem.to_str()).ok_or("a file without a name")?;
        let path = path.canonicalize()?;
        list.push_str(&format!("    ({name:?}, include_str!({path:?})),\n"));
    }
    list.push_str("];\n");
    fs::write(Path::new(&env::var("OUT_DIR")?).join("migrations.rs"), list)?;
    Ok(())
}
