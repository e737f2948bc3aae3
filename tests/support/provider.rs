//! Source of the AWS provider for Terraform, without a network.
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Namespace, in_ci, stdout_of};

/// Returns a Terraform configuration that finds the AWS provider: the configured one, or one for an
/// existing mirror. Without either, the test prints a note and passes; in CI it fails.
pub fn provider_config_or_skip(dir: &Path) -> Option<PathBuf> {
    if let Some(file) = std::env::var_os("TF_CLI_CONFIG_FILE").map(PathBuf::from)
        && file.is_file()
    {
        return Some(file);
    }
    let Some(mirror) = mirror() else {
        assert!(!in_ci(), "CI must have a mirror with the AWS provider");
        eprintln!("SKIPPED: no mirror with the AWS provider; name one by TF_CLI_CONFIG_FILE");
        return None;
    };
    Some(config_for(&mirror, dir))
}

/// Returns a configuration in this directory for another user, with a mirror that this user can
/// read.
pub fn provider_config_for_customers_or_skip(dir: &Path) -> Option<PathBuf> {
    let ours = fs::read_to_string(provider_config_or_skip(dir)?).unwrap();
    let named = ours.split("path").nth(1).and_then(|rest| rest.split('"').nth(1));
    let mirror = named.unwrap_or_else(|| panic!("no filesystem_mirror in {ours}"));
    Some(config_for(&for_customers(Path::new(mirror), dir), dir))
}

/// Returns a path at which the customer's user can read a file or directory: the original, or a
/// copy in this directory.
pub fn for_customers(path: &Path, dir: &Path) -> PathBuf {
    if Namespace::customer_can_read(path) {
        return path.to_path_buf();
    }
    let copy = dir.join(path.file_name().unwrap());
    stdout_of(Command::new("cp").args(["-R", "-L", "--reflink=auto"]).args([path, &copy]));
    stdout_of(Command::new("chmod").args(["-R", "a+rX"]).arg(&copy));
    assert!(Namespace::customer_can_read(&copy), "{} cannot be read", copy.display());
    copy
}

fn config_for(mirror: &Path, dir: &Path) -> PathBuf {
    let file = dir.join("terraform.rc");
    let mirror = mirror.display();
    let text =
        format!("provider_installation {{\n  filesystem_mirror {{ path = \"{mirror}\" }}\n}}\n");
    fs::write(&file, text).unwrap();
    file
}

/// Returns Terraform's default mirror, or the first one outside of home directories.
fn mirror() -> Option<PathBuf> {
    let has_aws = |top: &PathBuf| top.join("registry.terraform.io/hashicorp/aws").is_dir();
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let usual = [
        home.join(".terraform.d/plugins"),
        home.join(".local/share/terraform/plugins"),
        "/usr/local/share/terraform/plugins".into(),
        "/usr/share/terraform/plugins".into(),
    ];
    let usual = usual.into_iter().find(has_aws);
    usual.or_else(|| {
        let args = "/ -xdev -maxdepth 6 -type d -name registry.terraform.io -not -path /proc/* \
                     -not -path /home/* -not -path /root/*";
        let found = Command::new("find").args(args.split_whitespace()).output().ok()?;
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        let above = |line: &str| Path::new(line).parent().map(Path::to_path_buf);
        found.lines().filter_map(above).find(has_aws)
    })
}
