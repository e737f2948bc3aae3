//! `stead apps init`: a minimal, valid app with comments.
use std::{fs, path::Path};

use crate::{failure::Failure, settings::Settings};

/// Path and content of every file that the command writes.
const FILES: [(&str, &str); 9] = [
    ("metadata.toml", include_str!("starter/metadata.toml")),
    ("inputs.toml", include_str!("starter/inputs.toml")),
    ("sandbox.toml", include_str!("starter/sandbox.toml")),
    ("components/web.toml", include_str!("starter/components/web.toml")),
    ("components/dns.toml", include_str!("starter/components/dns.toml")),
    ("actions/smoke.toml", include_str!("starter/actions/smoke.toml")),
    ("modules/network/main.tf", include_str!("starter/modules/network/main.tf")),
    ("modules/web/main.tf", include_str!("starter/modules/web/main.tf")),
    ("modules/dns/main.tf", include_str!("starter/modules/dns/main.tf")),
];

pub(crate) fn run(dir: &Path, settings: &Settings) -> Result<(), Failure> {
    let taken: Vec<&str> =
        FILES.iter().map(|(path, _)| *path).filter(|path| dir.join(path).exists()).collect();
    if let Some(first) = taken.first() {
        return Err(Failure::Usage(format!(
            "cannot write the app: {} already exists\n  try: another directory",
            dir.join(first).display()
        )));
    }
    for (path, text) in FILES {
        let path = dir.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, text)?;
    }
    let paths: Vec<&str> = FILES.iter().map(|(path, _)| *path).collect();
    let result = serde_json::json!({"dir": dir, "files": paths});
    settings.screen().print_one(&result, |_| {
        let dir = dir.display();
        format!(
            "Wrote {} files to {dir}.\n  next: stead apps validate {dir}, then stead apps sync {dir}\n",
            FILES.len()
        )
    })
}

#[cfg(test)]
mod tests {
    use app_config::{File, Tree, read, survey};

    use super::*;

    #[test]
    fn starter_app_is_valid_without_changes() {
        let mut app = Tree::default();
        for (path, text) in FILES {
            app.insert(path, File { bytes: text.into(), executable: false }).unwrap();
        }
        let config = survey(&app, &[]).config;
        let sources = config.sources().into_iter();
        let sources =
            sources.map(|(name, source)| (name.to_owned(), app.subtree(&source.directory)));
        let bundle = Tree::bundle(&app, &sources.collect(), &[]).unwrap();
        let (config, warnings) = read(&bundle).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        assert_eq!(app_config::graph(&config).layers, [vec!["web"], vec!["dns"]]);
    }
}
