//! Compares the help of every command with the golden files in `schemas/cli`.
use std::{fs, path::Path};

use clap::CommandFactory;

use crate::Stead;

#[test]
fn command_line_is_valid() {
    Stead::command().debug_assert();
}

#[test]
fn every_command_has_a_description_and_an_example() {
    let mut root = Stead::command();
    root.build();
    let mut bare = Vec::new();
    leaves(&root, "stead".into(), &mut |name, command| {
        let about = command.get_about().is_some_and(|about| !about.to_string().is_empty());
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let typed = after.lines().filter(|line| !line.trim_start().starts_with("Example"));
        if !about || !typed.clone().any(|line| line.contains(name)) {
            bare.push(name.to_owned());
        }
        // An example must not use an option that the command does not have.
        for line in typed.filter(|line| line.contains(name)) {
            for word in line.split_whitespace().filter_map(|word| word.strip_prefix("--")) {
                let long = word.split('=').next().unwrap_or_default();
                let has = command.get_arguments().any(|arg| arg.get_long() == Some(long));
                assert!(has, "{name}: its example uses the unknown option --{long}");
            }
        }
    });
    assert!(bare.is_empty(), "commands without a summary or an example: {bare:?}");
}

fn leaves(command: &clap::Command, name: String, each: &mut impl FnMut(&str, &clap::Command)) {
    let mut below = command.get_subcommands().filter(|c| c.get_name() != "help").peekable();
    if below.peek().is_none() {
        return each(&name, command);
    }
    for command in below {
        leaves(command, format!("{name} {}", command.get_name()), each);
    }
}

/// Compares the help with the golden files. `UPDATE_GOLDEN=1` rewrites the files first: review the
/// difference from a customer's point of view.
#[test]
fn help_matches_golden_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/cli");
    let mut root = Stead::command().term_width(100);
    root.build();
    let mut differing = Vec::new();
    let mut expected = vec!["stead.txt".to_owned()];
    check(&folder, "stead", &root.render_help().to_string(), &mut differing);
    for noun in root.get_subcommands() {
        if noun.get_name() == "help" {
            continue;
        }
        let mut text = String::new();
        help_with_subcommands(noun, &mut text);
        expected.push(format!("{}.txt", noun.get_name()));
        check(&folder, noun.get_name(), &text, &mut differing);
    }
    assert!(differing.is_empty(), "help that differs from schemas/cli: {differing:?}");
    for file in fs::read_dir(&folder).unwrap() {
        let name = file.unwrap().file_name().to_string_lossy().into_owned();
        assert!(expected.contains(&name), "schemas/cli/{name} belongs to no command");
    }
}

/// Appends the help of a command and of all its subcommands.
fn help_with_subcommands(command: &clap::Command, text: &mut String) {
    let mut page = command.clone().term_width(100);
    // The golden file of `stead` itself contains the global options.
    for global in ["server", "token_file", "ca_file", "output", "no_color", "quiet"] {
        if page.get_arguments().any(|a| a.get_id() == global) {
            page = page.mut_arg(global, |arg| arg.hide(true));
        }
    }
    *text += &format!("{}\n", page.render_help().to_string().trim_end());
    for below in command.get_subcommands().filter(|c| c.get_name() != "help") {
        *text += &format!("\n{}\n", "-".repeat(60));
        help_with_subcommands(below, text);
    }
}

fn check(folder: &Path, name: &str, text: &str, differing: &mut Vec<String>) {
    let path = folder.join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(folder).unwrap();
        fs::write(&path, text).unwrap();
    }
    if fs::read_to_string(&path).unwrap_or_default() != text {
        differing.push(name.to_owned());
    }
}
