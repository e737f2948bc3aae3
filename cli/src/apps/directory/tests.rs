use std::os::unix::fs::symlink;

use super::*;

#[test]
fn links_are_followed_only_inside_the_repository() {
    let dir = tempfile::tempdir().unwrap();
    let repo = dir.path().join("repo");
    let app = repo.join("apps/shop");
    fs::create_dir_all(&app).unwrap();
    fs::create_dir_all(repo.join(".git")).unwrap();
    fs::write(repo.join("shared.toml"), "a = 1").unwrap();
    fs::write(dir.path().join("secret"), "x").unwrap();
    symlink("../../shared.toml", app.join("linked.toml")).unwrap();
    let tree = read(&app).unwrap();
    assert_eq!(tree.text("linked.toml"), Some("a = 1"));

    symlink(dir.path().join("secret"), app.join("out")).unwrap();
    symlink("nowhere", app.join("dangling")).unwrap();
    let refused = read(&app).unwrap_err().text();
    assert!(refused.contains("the target of the link does not exist"), "{refused}");
    let (tree, findings) = survey(&app).unwrap();
    assert_eq!(tree.len(), 1);
    let findings: Vec<_> =
        findings.iter().map(|finding| (finding.code, finding.file.as_str())).collect();
    assert_eq!(findings, [("missing_file", "dangling"), ("path_escape", "out")]);
}

/// `.git/config` may contain a token of the user.
#[test]
fn link_to_an_excluded_directory_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let app = dir.path().join(".terraform/app");
    for directory in [".git", ".terraform/app/.terraform/modules", ".terraform/app/shared"] {
        fs::create_dir_all(dir.path().join(directory)).unwrap();
    }
    fs::write(dir.path().join(".git/config"), "token").unwrap();
    fs::write(app.join("terraform.tfstate.backup"), "{}").unwrap();
    fs::write(app.join("shared/a.txt"), "a").unwrap();
    symlink("shared/a.txt", app.join("linked.txt")).unwrap();
    symlink("../../.git", app.join("git")).unwrap();
    symlink("../../.git/config", app.join("notes.md")).unwrap();
    symlink(".terraform/modules", app.join("modules")).unwrap();
    symlink("terraform.tfstate.backup", app.join("state.txt")).unwrap();
    let (tree, findings) = survey(&app).unwrap();
    let sent: Vec<_> = tree.iter().map(|(path, _)| path).collect();
    assert_eq!(sent, ["linked.txt", "shared/a.txt"]);
    let findings: Vec<_> =
        findings.iter().map(|finding| (finding.code, finding.file.as_str())).collect();
    let refused = ["git", "modules", "notes.md", "state.txt"];
    assert_eq!(findings, refused.map(|file| ("path_escape", file)));
}

#[test]
fn link_cycle_is_rejected_and_state_is_excluded() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("module/.terraform")).unwrap();
    fs::write(dir.path().join("module/terraform.tfstate"), "{}").unwrap();
    fs::write(dir.path().join("module/main.tf"), "").unwrap();
    let tree = read(dir.path()).unwrap();
    assert_eq!(tree.iter().map(|(p, _)| p).collect::<Vec<_>>(), ["module/main.tf"]);

    symlink("..", dir.path().join("module/up")).unwrap();
    let refused = read(dir.path()).unwrap_err().text();
    assert!(refused.contains("leads back"), "{refused}");
}

/// Two links on each of twenty levels make a million paths.
#[test]
fn number_of_linked_directories_is_limited() {
    let dir = tempfile::tempdir().unwrap();
    for level in 0..20 {
        let (directory, next) =
            (dir.path().join(format!("d{level}")), format!("../d{}", level + 1));
        fs::create_dir(&directory).unwrap();
        symlink(&next, directory.join("a")).unwrap();
        symlink(&next, directory.join("b")).unwrap();
    }
    fs::create_dir(dir.path().join("d20")).unwrap();
    let (_, findings) = survey(dir.path()).unwrap();
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!(finding.code, "too_much");

    let deep = tempfile::tempdir().unwrap();
    fs::create_dir_all(deep.path().join("d/".repeat(70))).unwrap();
    fs::write(deep.path().join("x"), "").unwrap();
    let (tree, findings) = survey(deep.path()).unwrap();
    assert_eq!((tree.len(), findings.len(), findings[0].code), (1, 1, "too_much"));
}

#[test]
fn unreadable_entries_are_findings() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let name = std::ffi::OsStr::from_bytes(b"bad\xffname");
    fs::write(dir.path().join(name), "").unwrap();
    // The name is too long, so every file system call on it fails.
    symlink("x".repeat(300), dir.path().join("long")).unwrap();
    fs::write(dir.path().join("z.toml"), "a = 1").unwrap();
    let (tree, findings) = survey(dir.path()).unwrap();
    assert_eq!(tree.len(), 1);
    let findings: Vec<_> =
        findings.iter().map(|finding| (finding.code, finding.file.as_str())).collect();
    assert_eq!(findings, [("bad_name", "bad\u{fffd}name"), ("unreadable", "long")]);
}

#[test]
fn path_in_repository_is_relative_to_the_root() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join(".git")).unwrap();
    fs::create_dir_all(dir.path().join("apps/shop")).unwrap();
    assert_eq!(path_in_repository(&dir.path().join("apps/shop")).unwrap(), "apps/shop");
    assert_eq!(path_in_repository(dir.path()).unwrap(), "");
}
