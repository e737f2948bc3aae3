use super::*;

fn tree(entries: &[(&str, &str)]) -> Tree {
    let mut tree = Tree::default();
    for (path, target) in entries {
        let kind = match *target {
            "" => Kind::File { executable: false },
            "submodule" => Kind::Submodule,
            _ => Kind::Link,
        };
        if kind == Kind::Link {
            tree.links.insert((*path).into(), (*target).into());
        }
        let entry = Entry { kind, id: format!("blob of {path}"), repository: 0 };
        tree.entries.insert((*path).into(), entry);
    }
    tree
}

fn selected(tree: &Tree, path: &str) -> Result<Vec<(String, String)>, PathError> {
    let mut selection = Selection::default();
    assert!(tree.select(path, &mut selection)?, "{path} does not exist");
    Ok(selection.files.into_iter().map(|(path, entry)| (path, entry.id)).collect())
}

fn owned(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(path, of)| ((*path).into(), format!("blob of {of}"))).collect()
}

#[test]
fn a_directory_is_selected_with_the_targets_of_its_links() {
    let tree = tree(&[
        ("app/main.tf", ""),
        ("app/shared", "../shared"),
        ("app/one.tf", "../shared/one.tf"),
        ("app/.terraform/x", ""),
        ("app/terraform.tfstate", ""),
        ("shared/one.tf", ""),
        ("shared/two.tf", "one.tf"),
        ("other/x", ""),
    ]);
    let expected = [
        ("app/main.tf", "app/main.tf"),
        ("app/one.tf", "shared/one.tf"),
        ("app/shared/one.tf", "shared/one.tf"),
        ("app/shared/two.tf", "shared/one.tf"),
    ];
    assert_eq!(selected(&tree, "app"), Ok(owned(&expected)));
    let below_a_link =
        [("app/shared/one.tf", "shared/one.tf"), ("app/shared/two.tf", "shared/one.tf")];
    assert_eq!(selected(&tree, "app/shared"), Ok(owned(&below_a_link)));
}

#[test]
fn links_that_lead_out_or_nowhere_are_errors() {
    let error = |entries: &[(&str, &str)]| selected(&tree(entries), "app").unwrap_err().to_string();
    for target in ["/etc/passwd", "../../etc/passwd", ".."] {
        let error = error(&[("app/x", target), ("y", "")]);
        let expected =
            if target == ".." { "parent directories" } else { "points outside the repository" };
        assert!(error.starts_with("app/x:1: the link") && error.contains(expected), "{error}");
    }
    assert!(error(&[("app/x", "y")]).contains("\"y\" does not exist"));
    assert!(error(&[("app/x", "y"), ("app/y", "x")]).contains("parent directories"));
    assert!(error(&[("app/x", "../b"), ("b/y", "../app")]).contains("parent directories"));
}

#[test]
fn references_are_relative_to_their_file() {
    let tree = tree(&[("a/b/main.tf", ""), ("modules/vpc/main.tf", ""), ("m", "modules")]);
    let select = |path: &str, required| {
        let reference = Reference { line: 3, path: path.into(), kind: "module source", required };
        let mut selection = Selection::default();
        let selected = tree.select_reference("a/b/main.tf", &reference, &mut selection);
        selected.map(|()| selection.files.into_keys().collect::<Vec<_>>())
    };
    assert_eq!(select("../../modules/vpc", true), Ok(vec!["modules/vpc/main.tf".to_owned()]));
    assert_eq!(select("../../m/vpc", true), Ok(vec!["m/vpc/main.tf".to_owned()]));
    let outside = select("../../../x", true).unwrap_err().to_string();
    let expected = "a/b/main.tf:3: the module source \"../../../x\" points outside the repository; copy its \
                    target into the repository";
    assert_eq!(outside, expected);
    assert!(select("../x", true).unwrap_err().to_string().contains("does not exist"));
    assert_eq!(select("../x", false), Ok(vec![]));
}

#[test]
fn a_submodule_is_selected_after_its_files_are_known() {
    let mut tree = tree(&[("app/main.tf", ""), ("app/lib", "submodule")]);
    let mut selection = Selection::default();
    assert_eq!(tree.select("app/lib/x", &mut selection), Ok(true));
    assert_eq!(selection.submodules.iter().collect::<Vec<_>>(), ["app/lib"]);
    tree.insert_submodule("app/lib", Tree::parse(b"100755 blob 1234\tx/run.sh\0", 1).unwrap());
    let files = selected(&tree, "app/lib/x").unwrap();
    assert_eq!(files, [("app/lib/x/run.sh".to_owned(), "1234".to_owned())]);
}

#[test]
fn a_listing_with_an_unsafe_path_is_rejected() {
    for line in
        ["100644 blob 12\t../x\0", "100644 blob 12\ta//b\0", "100644 blob\0", "1 blob 2\tx\0"]
    {
        assert!(Tree::parse(line.as_bytes(), 0).is_err(), "{line:?}");
    }
}

#[test]
fn links_that_multiply_directories_end_the_selection() {
    // Each level has four links to the next one, so 4^14 paths lead to the last file.
    let mut entries = vec![("app/start".to_owned(), "../level-0".to_owned())];
    for level in 0..14 {
        for name in ["a", "b", "c", "d"] {
            let target = format!("../level-{}", level + 1);
            entries.push((format!("level-{level}/{name}"), target));
        }
    }
    entries.push(("level-14/.terraform/x".into(), String::new()));
    let entries: Vec<_> = entries.iter().map(|(path, to)| (path.as_str(), to.as_str())).collect();
    assert_eq!(selected(&tree(&entries), "app"), Err(PathError::TooManySteps));
}

#[test]
fn steps_of_earlier_selections_count() {
    let tree = tree(&[("app/main.tf", "")]);
    assert_eq!(tree.select("app", &mut Selection::continued(0)), Ok(true));
    let exhausted = tree.select("app", &mut Selection::continued(MAX_STEPS));
    assert_eq!(exhausted, Err(PathError::TooManySteps));
}
