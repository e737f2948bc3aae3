use app_config::{Origin, template::render};
use domain::secret::{Through, placeholder};
use schemas::manifest::PluginRef;
use serde_json::json;
use ulid::Ulid;

use super::*;
use crate::sensitive::Known;

const INPUTS: &str = "[[input]]\nname = \"token\"\nsensitive = true\n\
    [[input]]\nname = \"dflt\"\nsensitive = true\ndefault = \"clear\"\n\
    [[input]]\nname = \"none\"\nsensitive = true\n[[input]]\nname = \"plain\"\n";
const COMPONENT: &str = "name = \"db\"\ntype = \"terraform_module\"\nterraform_version = \"1.11.4\"\n\
    [public_repo]\nrepo = \".\"\ndirectory = \".\"\n";

fn id(number: u128) -> ValueId {
    ValueId(Ulid(number))
}

fn config() -> AppConfig {
    let mut tree = app_config::Tree::default();
    for (path, text) in [
        ("app/metadata.toml", "version = \"v2\"\n"),
        ("app/inputs.toml", INPUTS),
        ("app/components/db.toml", COMPONENT),
        ("source/db/main.tf", ""),
    ] {
        let file = app_config::File { bytes: text.as_bytes().to_vec(), executable: false };
        tree.insert(path, file).unwrap();
    }
    crate::configs::read(&tree.encode().unwrap(), vec![]).unwrap().app
}

fn known(name: &str, json: bool) -> Known {
    let consumer = |job_kind: &str| Consumer { component: "web".into(), job_kind: job_kind.into() };
    let (consumers, stored_at) = (vec![consumer("plan")], chrono::DateTime::UNIX_EPOCH);
    Known { name: name.into(), consumers, json, customer: false, stored_at }
}

struct World {
    nuon: Value,
    values: SensitiveValues,
}

impl World {
    fn new() -> World {
        let inputs = json!({
            "token": placeholder(id(1)), "dflt": "clear", "none": "", "plain": placeholder(id(1)),
        });
        let outputs =
            json!({ "password": placeholder(id(2)), "list": placeholder(id(3)), "url": "u" });
        let mut nuon = json!({ "nuon": {
            "inputs": { "inputs": inputs }, "install": { "inputs": inputs },
            "components": { "db": { "outputs": outputs } },
        } });
        let known = KnownValues::from([
            (id(1), known("inputs.token", false)),
            (id(2), known("outputs.db.password", false)),
            (id(3), known("outputs.db.list", true)),
        ]);
        let values = SensitiveValues::mark(&mut nuon, &config(), known);
        World { nuon, values }
    }

    fn parts(&self, text: &str) -> ManifestParts {
        let text = render(text, &self.nuon, &Origin::default()).unwrap();
        ManifestParts {
            plugin: PluginRef {
                name: "x".into(),
                version: "1".into(),
                digest: None,
                artifact: None,
            },
            inputs: json!({ "vars": { "a/b": ["", text] } }),
            env: BTreeMap::from([("TEXT".to_owned(), text)]),
            role: None,
            deadline_ms: 1,
        }
    }

    fn references(
        &self,
        text: &str,
        kind: &str,
    ) -> Result<(ManifestParts, Vec<SecretReference>), String> {
        let mut parts = self.parts(text);
        let job = Consumer { component: "web".into(), job_kind: kind.into() };
        let references = self.values.references(&mut parts, &job)?;
        Ok((parts, references))
    }
}

#[test]
fn marks_become_references_to_their_places() {
    let world = World::new();
    let text =
        "{{ .nuon.inputs.inputs.token | b64enc }}:{{ .stead.components.db.outputs.password }}";
    let (parts, references) = world.references(text, "plan").unwrap();
    let expected = format!("{}:{}", placeholder(id(1)), placeholder(id(2)));
    assert_eq!(parts.inputs["vars"]["a/b"][1], expected);
    assert_eq!(parts.env["TEXT"], expected);
    let found: Vec<_> =
        references.iter().map(|one| (one.pointer.as_str(), one.start, one.id)).collect();
    let second = placeholder(id(1)).len() as u64 + 1;
    assert_eq!(
        found,
        [
            ("/env/TEXT", 0, id(1)),
            ("/env/TEXT", second, id(2)),
            ("/inputs/vars/a~1b/1", 0, id(1)),
            ("/inputs/vars/a~1b/1", second, id(2)),
        ]
    );
    assert_eq!(references[0].through, [Through::Base64]);
    // The default is in the config, an absent value is empty, and an input that is not sensitive is a text.
    let (parts, references) = world
        .references("{{ .nuon.inputs.inputs.dflt }}{{ .nuon.inputs.inputs.none }}", "plan")
        .unwrap();
    assert_eq!((parts.env["TEXT"].as_str(), references.len()), ("clear", 0));
    let (parts, references) = world.references("{{ .nuon.inputs.inputs.plain }}", "plan").unwrap();
    assert_eq!((parts.env["TEXT"].as_str(), references.len()), (placeholder(id(1)).as_str(), 0));
    let (_, references) =
        world.references("{{ toJson .nuon.components.db.outputs.list }}", "plan").unwrap();
    assert_eq!((references[0].id, references[0].through.len()), (id(3), 0));
}

#[test]
fn a_reference_that_the_runner_would_refuse_is_not_rendered() {
    let mut world = World::new();
    let text = "{{ .nuon.inputs.inputs.token }}";
    let why = world.references(text, "apply").err().unwrap();
    assert!(why.contains("inputs.token is encrypted for other jobs than apply of web"), "{why}");
    assert!(why.contains("--secret token=FILE"), "{why}");
    let mut parts = world.parts("x");
    parts.role = Some(render(text, &world.nuon, &Origin::default()).unwrap());
    let job = Consumer { component: "web".into(), job_kind: "plan".into() };
    let why = world.values.references(&mut parts, &job).err().unwrap();
    assert!(why.contains("the name of a role reads a sensitive value"), "{why}");
    // The id of another value in place of this one.
    world.values.known.insert(id(1), known("inputs.other", false));
    let why = world.references(text, "plan").err().unwrap();
    assert!(why.contains("belongs to inputs.other, not to inputs.token"), "{why}");
    world.values.known.remove(&id(1));
    let why = world.references(text, "plan").err().unwrap();
    assert!(why.contains("inputs.token") && why.contains("was erased or replaced"), "{why}");
}
