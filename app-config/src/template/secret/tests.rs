use domain::secret::Through;
use serde_json::{Value as Json, json};

use super::*;
use crate::{
    template::{TemplateError, render},
    text::Origin,
};

const MARK: &str = "stead-0123";

fn id(number: u32) -> ValueId {
    format!("val_{number:026}").parse().unwrap()
}

fn state() -> Json {
    json!({
        PREFIX_KEY: MARK,
        "nuon": {
            "token": mark(MARK, id(1), false),
            "user": mark(MARK, id(2), false),
            "creds": mark(MARK, id(3), true),
            "fallback": mark_default(MARK, "s3 cret"),
            "plain": "p",
            "empty": "",
            "all": { "token": mark(MARK, id(1), false), "plain": "p" },
            "list": [mark(MARK, id(1), false), "p"],
        },
    })
}

fn rendered(template: &str) -> Result<(String, Vec<Reference>), TemplateError> {
    render(template, &state(), &Origin::default()).map(|text| take_marks(MARK, &text).unwrap())
}

/// Renders a template with one sensitive value, and returns what the runner inserts.
fn inserted(template: &str, value: &str) -> String {
    let (text, references) =
        rendered(template).unwrap_or_else(|error| panic!("{template}: {error}"));
    let [Reference { start, end, id, through }] = references.as_slice() else {
        panic!("{template}: {text} {references:?}")
    };
    assert_eq!(text[*start..*end], placeholder(*id), "{template}");
    format!("{}{}{}", &text[..*start], apply(through, value), &text[*end..])
}

#[test]
fn a_template_inserts_a_value_also_through_functions() {
    for (template, expected) in [
        ("é{{ .nuon.token }}z", "éa \"b\"z"),
        ("{{ .nuon.token | b64enc }}", "YSAiYiI="),
        ("{{ b64enc .nuon.token | quote }}", "\"YSAiYiI=\""),
        ("{{ quote .nuon.token }}", r#""a \"b\"""#),
        ("{\"t\": {{ toJson .nuon.token }}}", r#"{"t": "a \"b\""}"#),
        ("{{ printf \"%s:%s\" .nuon.plain .nuon.token | b64enc }}", "cDphICJiIg=="),
        ("{{ printf \"%v%%\" .nuon.token }}", "a \"b\"%"),
        ("{{ printf \"%04d|%s|%-3s|\" 7 .nuon.token .nuon.plain }}", "0007|a \"b\"|p  |"),
        ("{{ print \"x\" .nuon.token }}", "xa \"b\""),
        ("{{ urlquery .nuon.token }}", "a+%22b%22"),
        ("x:{{ .nuon.token | trim | nindent 2 }}", "x:\n  a \"b\""),
        ("{{ indent 2 .nuon.token }}", "  a \"b\""),
        ("{{ .nuon.token | default \"d\" }}", "a \"b\""),
        ("{{ index .nuon.all \"token\" }}", "a \"b\""),
        ("{{ dig \"no\" .nuon.token .nuon.all }}", "a \"b\""),
        ("{{ (dict \"k\" .nuon.token).k }}", "a \"b\""),
        ("{{ range .nuon.list }}[{{ . }}]{{ end }}", "[a \"b\"][p]"),
        ("{{ $t := .nuon.token }}{{ if .nuon.plain }}{{ $t }}{{ end }}", "a \"b\""),
        ("{{ or .nuon.empty .nuon.token }}", "a \"b\""),
        ("{{ ternary .nuon.token .nuon.plain true }}", "a \"b\""),
        ("{{ define \"t\" }}<{{ . }}>{{ end }}{{ template \"t\" .nuon.token }}", "<a \"b\">"),
    ] {
        assert_eq!(inserted(template, "a \"b\""), expected, "{template}");
    }
    assert_eq!(inserted("{{ .nuon.token | default \"d\" }}", ""), "d");
    assert_eq!(inserted("{{ toJson .nuon.creds }}", "{\"a\":1}"), "{\"a\":1}");
    assert_eq!(inserted("{{ .nuon.creds | toJson | b64enc }}", "{}"), "e30=");
}

#[test]
fn several_values_are_referenced_in_order() {
    let (text, references) = rendered("{{ .nuon.user }}:{{ b64enc .nuon.token }}").unwrap();
    assert_eq!(text, format!("{}:{}", placeholder(id(2)), placeholder(id(1))));
    assert_eq!(references.iter().map(|one| one.id).collect::<Vec<_>>(), [id(2), id(1)]);
    assert_eq!(references[1].through, [Through::Base64]);
    assert!(references[0].end < references[1].start);
}

#[test]
fn a_template_that_inspects_a_value_fails_with_its_place() {
    for template in [
        "{{ if .nuon.token }}x{{ end }}",
        "{{ with .nuon.token }}x{{ end }}",
        "{{ range .nuon.token }}x{{ end }}",
        "{{ if and true .nuon.token }}x{{ end }}",
        "{{ and .nuon.token .nuon.plain }}",
        "{{ or .nuon.token \"x\" }}",
        "{{ len .nuon.token }}",
        "{{ eq .nuon.token \"x\" }}",
        "{{ ne \"x\" .nuon.token }}",
        "{{ not .nuon.token }}",
        "{{ index .nuon.token 0 }}",
        "{{ .nuon.token.field }}",
        "{{ coalesce .nuon.token \"x\" }}",
        "{{ kindIs \"string\" .nuon.token }}",
        "{{ printf \"%.1s\" .nuon.token }}",
        "{{ printf \"%.4s\" .nuon.token }}",
        "{{ printf \"%.8s\" .nuon.token }}",
        "{{ printf \"%.100s\" .nuon.token }}",
        "{{ printf \"%.100000s\" .nuon.token }}",
        "{{ printf \"%.*s\" 100000 .nuon.token }}",
        "{{ printf \"%1s\" .nuon.token }}",
        "{{ printf \"%-1s\" .nuon.token }}",
        "{{ printf \"%*s\" 1 .nuon.token }}",
        "{{ printf \"%+v\" .nuon.token }}",
        "{{ printf \"%#v\" .nuon.token }}",
        "{{ printf \"%[1]s\" .nuon.token }}",
        "{{ printf \"%[1]s %[1]s\" .nuon.token }}",
        "{{ printf \"%s %[1]s\" .nuon.token }}",
        "{{ printf \"%[2]s\" .nuon.token .nuon.plain }}",
        "{{ printf \"%s\" .nuon.plain .nuon.token }}",
        "{{ printf \"%s\u{f0000}\" .nuon.token }}",
        "{{ printf \"%30s\" .nuon.token }}",
        "{{ printf \"%q\" .nuon.token }}",
        "{{ printf \"%x\" .nuon.token }}",
        "{{ .nuon.token | println }}",
        "{{ join \",\" .nuon.token }}",
        "{{ if .nuon.fallback }}x{{ end }}",
        "{{ html .nuon.token }}",
    ] {
        let error = rendered(template).unwrap_err().to_string();
        assert!(error.contains("inspect a sensitive value"), "{template}: {error}");
    }
    for (template, message) in [
        ("{{ .nuon.all }}", "cannot be printed together with others"),
        ("{{ toJson .nuon.list }}", "cannot be printed together with others"),
        ("{{ join \",\" .nuon.list }}", "cannot be printed together with others"),
        ("{{ . }}{{ .nuon.plain }}", "cannot be printed together with others"),
        ("{{ .nuon.creds }}", "only be inserted with `toJson`"),
        ("{{ quote .nuon.creds }}", "only be inserted with `toJson`"),
        ("{{ printf \"%s%s\" .nuon.user .nuon.token }}", "one sensitive value"),
        ("{{ printf \"%s%v\" .nuon.user .nuon.list }}", "one sensitive value"),
        ("{{ lower .nuon.token }}", "has type sensitive value"),
        ("{{ fromJson .nuon.token }}", "has type sensitive value"),
        ("{{ .nuon.token | default .nuon.user }}", "inspect a sensitive value"),
    ] {
        let error = rendered(template).unwrap_err().to_string();
        assert!(error.contains(message), "{template}: {error}");
        assert!(!error.contains(MARK), "{error}");
    }
}

#[test]
fn a_default_is_inserted_by_the_server() {
    let (text, references) = rendered("{{ .nuon.fallback | b64enc }}").unwrap();
    assert_eq!((text.as_str(), references.len()), ("czMgY3JldA==", 0));
}

#[test]
fn only_marks_of_this_state_are_sensitive() {
    let foreign = mark("stead-9999", id(1), false);
    let state = json!({ PREFIX_KEY: MARK, "nuon": { "a": foreign, "b": placeholder(id(1)) } });
    let text = render("{{ .nuon.a }}{{ .nuon.b }}", &state, &Origin::default()).unwrap();
    let (unchanged, references) = take_marks(MARK, &text).unwrap();
    assert_eq!((unchanged, references), (text, vec![]));
    // The prefix itself is not part of the data.
    let text = render("{{ toJson .nuon }}{{ len . }}", &state, &Origin::default()).unwrap();
    assert!(!text.contains(MARK), "{text}");
    let cut = format!("{MARK}00ff");
    assert!(take_marks(MARK, &cut).is_err() && take_marks(MARK, &format!("{cut};")).is_err());
}
