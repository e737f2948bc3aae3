//! Compares `schemas/dashboard-coverage.txt` with the routes of the Control API, the commands of `stead`, and the
//! routes of the dashboard.
use std::{collections::BTreeSet, fs, path::Path};

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::read_to_string(root.join(path)).unwrap()
}

/// Method and path of each route of the Control API.
fn routes() -> BTreeSet<String> {
    let methods = ["GET", "POST", "PUT", "PATCH", "DELETE"];
    let text = read("schemas/routes/control.txt");
    let route = |line: &str| {
        let (path_at, method) =
            methods.iter().find_map(|method| Some((line.find(&format!("{method} "))?, method)))?;
        let path = line[path_at..].split_whitespace().nth(1)?;
        Some(format!("{method} {path}"))
    };
    text.lines().filter_map(route).collect()
}

/// Each command of `stead` without subcommands.
fn commands() -> BTreeSet<String> {
    let subcommands = |noun: &str| -> Vec<String> {
        let text = read(&format!("schemas/cli/{noun}.txt"));
        let listed = text.lines().skip_while(|line| *line != "Commands:").skip(1);
        let listed = listed.take_while(|line| !line.is_empty());
        let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let names = names.filter_map(|line| line.split_whitespace().next());
        names.filter(|name| *name != "help").map(str::to_owned).collect()
    };
    let of = |noun: String| match subcommands(&noun) {
        none if none.is_empty() => vec![format!("stead {noun}")],
        verbs => verbs.iter().map(|verb| format!("stead {noun} {verb}")).collect(),
    };
    subcommands("stead").into_iter().flat_map(of).collect()
}

#[test]
fn each_route_and_command_has_a_page_or_a_reason() {
    let text = read("schemas/dashboard-coverage.txt");
    let mounted = read("api/src/ui.rs");
    let mut listed = BTreeSet::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (name, page) = line.split_once(" | ").unwrap_or_else(|| panic!("no ` | ` in {line:?}"));
        assert!(listed.insert(name.trim().to_owned()), "listed twice: {name}");
        let page = page.trim();
        let reason = page.strip_prefix("CLI only: ").or_else(|| page.strip_prefix("API only: "));
        let is_mounted = mounted.contains(&format!(".route(\"{page}\","));
        assert!(
            reason.is_some_and(|reason| !reason.is_empty()) || is_mounted,
            "no page {page:?}: {line}"
        );
    }
    let existing: BTreeSet<String> = routes().union(&commands()).cloned().collect();
    let missing: Vec<_> = existing.difference(&listed).collect();
    let unknown: Vec<_> = listed.difference(&existing).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "missing: {missing:#?}\nunknown: {unknown:#?}"
    );
}

/// A page must not suggest a command that does not exist.
#[test]
fn each_suggested_command_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboard/src");
    let (commands, mut checked) = (commands(), 0);
    for dir in [root.join("pages"), root.join("components")] {
        for file in fs::read_dir(dir).unwrap() {
            let path = file.unwrap().path();
            if path.is_dir() {
                continue;
            }
            let text = fs::read_to_string(path).unwrap();
            for suggested in text.split("&[\"stead\", ").skip(1) {
                let words: Vec<_> = suggested.split('"').skip(1).step_by(2).take(2).collect();
                let command = format!("stead {}", words.join(" "));
                assert!(commands.contains(&command), "{command}");
                let (suggested, _) = suggested.split_once(']').unwrap();
                let help = read(&format!("schemas/cli/{}.txt", words[0]));
                for option in suggested.split('"').filter(|word| word.starts_with("--")) {
                    let name = option.split('=').next().unwrap();
                    assert!(help.contains(&format!("{name} ")), "{command} {option}");
                }
                checked += 1;
            }
        }
    }
    assert!(checked > 5, "{checked}");
}
