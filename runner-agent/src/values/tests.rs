//! A hostile server sends values of other places, installs and jobs.
use domain::secret::Through;
use install_keys::{Seed, os_rng};
use schemas::{
    manifest::{MANIFEST_TYPE, MANIFEST_V2_TYPE},
    secret::{Ciphertext, SecretReference, input_name, placeholder},
};
use serde_json::json;

use super::*;

const LOG: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

struct World {
    _dir: tempfile::TempDir,
    data: Data,
    keys: InstallKeys,
    install: InstallId,
}

fn ulid(number: u128) -> ulid::Ulid {
    ulid::Ulid(number)
}

fn world() -> World {
    let dir = tempfile::tempdir().unwrap();
    let data = Data::open(dir.path()).unwrap();
    let keys = InstallKeys::new(&Seed::generate(&mut os_rng()), 1);
    World { _dir: dir, data, keys, install: InstallId(ulid(1)) }
}

fn consumer(component: &str, job_kind: &str) -> Consumer {
    Consumer { component: component.into(), job_kind: job_kind.into() }
}

impl World {
    fn of(&self) -> Of<'_> {
        Of { log_id: LOG, install: self.install }
    }

    /// Encrypts a value as the vendor's CLI does.
    fn encrypt(&self, id: u128, name: &str, text: &str) -> EncryptedValue {
        let consumers = vec![consumer("db", "plan"), consumer("db", "apply")];
        let (id, name, ciphertext) = (ValueId(ulid(id)), input_name(name), None);
        let mut value =
            EncryptedValue { id, name, consumers, signed: false, json: false, ciphertext };
        let public = self.keys.public();
        let ciphertext = with_context(&value, self.of(), |context| {
            public.encrypt(context, text.as_bytes(), &mut os_rng()).unwrap()
        });
        value.ciphertext = Some(Ciphertext(ciphertext));
        value
    }

    fn open(
        &self,
        manifest: &Manifest,
        received: &[EncryptedValue],
    ) -> Result<OpenValues, Refusal> {
        let opener = Opener {
            data: &self.data,
            keys: Some(&self.keys),
            log_id: LOG,
            install: Some(self.install),
        };
        opener.open(manifest, received)
    }

    /// Returns why the runner refuses the manifest with these values.
    fn refused(&self, manifest: &Manifest, received: &[EncryptedValue]) -> String {
        let refusal = self.open(manifest, received).unwrap_err();
        assert_eq!((refusal.by, refusal.rule.as_str()), (RefusedBy::Verification, RULE));
        refusal.detail
    }
}

/// Returns a manifest that inserts a value between two texts.
fn manifest(id: u128, through: Vec<Through>) -> Manifest {
    let id = ValueId(ulid(id));
    let text = format!("é-{}-z", placeholder(id));
    let (start, end) = (3, text.len() as u64 - 2);
    let pointer = "/inputs/vars/a~1b".into();
    serde_json::from_value(json!({
        "version": 1, "job": format!("job_{}", ulid(3)), "kind": "plan", "class": "pure",
        "plugin": { "name": "terraform_module", "version": "1" },
        "inputs": { "component": "db", "vars": { "a/b": text } },
        "env": {},
        "limits": { "output_bytes": 1 },
        "timeouts": { "deadline_ms": 1, "grace_ms": 1 },
        "secrets": [SecretReference { pointer, start, end, id, through }],
    }))
    .unwrap()
}

#[test]
fn values_are_inserted_through_functions_and_returned_for_redaction() {
    let world = world();
    let value = world.encrypt(7, "token", "s3cret");
    let mut manifest = manifest(7, vec![Through::Base64]);
    assert_eq!(manifest.payload_type(), MANIFEST_V2_TYPE);
    // a second reference to the same value, in the environment
    let id = ValueId(ulid(7));
    let text = format!("{0}:{0}", placeholder(id));
    manifest.env.insert("BOTH".into(), text.clone());
    let length = placeholder(id).len() as u64;
    for start in [0, length + 1] {
        let (pointer, end, through) = ("/env/BOTH".into(), start + length, vec![]);
        let reference = SecretReference { pointer, start, end, id, through };
        manifest.secrets.insert(manifest.secrets.len() - 1, reference);
    }
    let open = world.open(&manifest, &[value]).unwrap();
    let inserted = fill::fill(&mut manifest, &open).unwrap();
    assert_eq!(manifest.inputs["vars"]["a/b"], "é-czNjcmV0-z");
    assert_eq!(manifest.env["BOTH"], "s3cret:s3cret");
    assert!(inserted.iter().any(|text| text.as_str() == "czNjcmV0"));
    assert_eq!(manifest.payload_type(), MANIFEST_TYPE);
}

#[test]
fn a_hostile_server_is_refused_by_name() {
    let world = world();
    let good = world.encrypt(7, "token", "s3cret");
    let manifest = manifest(7, vec![]);
    assert!(world.open(&manifest, std::slice::from_ref(&good)).is_ok());
    // erased
    assert!(world.refused(&manifest, &[]).contains("erased or replaced"));
    let other = world.encrypt(8, "other", "0ther");
    // swapped: the ciphertext of another value
    let swapped = EncryptedValue { ciphertext: other.ciphertext.clone(), ..good.clone() };
    assert!(world.refused(&manifest, &[swapped]).contains("it was moved, replaced"));
    // replayed: the ciphertext of a former value of this input, under the new id
    let former = world.encrypt(9, "token", "f0rmer");
    let replayed = EncryptedValue { ciphertext: former.ciphertext, ..good.clone() };
    assert!(world.refused(&manifest, &[replayed]).contains("it was moved, replaced"));
    // another name, further consumers, another writer
    let renamed = EncryptedValue { name: input_name("harmless"), ..good.clone() };
    assert!(world.refused(&manifest, &[renamed]).contains("it was moved, replaced"));
    let mut wider = good.clone();
    wider.consumers.push(consumer("*", "*"));
    assert!(world.refused(&manifest, &[wider]).contains("it was moved, replaced"));
    let signed = EncryptedValue { signed: true, ..good.clone() };
    world.refused(&manifest, &[signed]);
    // of another install, with its own keys and with these keys
    let foreign = super::tests::world().encrypt(7, "token", "s3cret");
    assert!(world.refused(&manifest, &[foreign]).contains("another key"));
    let moved =
        World { install: InstallId(ulid(2)), keys: clone(&world.keys), ..super::tests::world() };
    let moved = moved.encrypt(7, "token", "s3cret");
    assert!(world.refused(&manifest, &[moved]).contains("it was moved, replaced"));
    // changed and cut
    let Ciphertext(bytes) = good.ciphertext.clone().unwrap();
    for at in [0, bytes.len() / 2, bytes.len() - 1] {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        let ciphertext = Some(Ciphertext(changed));
        world.refused(&manifest, &[EncryptedValue { ciphertext, ..good.clone() }]);
        let ciphertext = Some(Ciphertext(bytes[..at].to_vec()));
        world.refused(&manifest, &[EncryptedValue { ciphertext, ..good.clone() }]);
    }
    // without a ciphertext: the server claims that the customer set it
    let absent = EncryptedValue { ciphertext: None, ..good };
    assert!(world.refused(&manifest, &[absent]).contains("on another host, or removed it"));
}

/// Returns the same keys again.
fn clone(keys: &InstallKeys) -> InstallKeys {
    keys.clone()
}

#[test]
fn a_reference_for_another_job_is_refused() {
    let world = world();
    let good = [world.encrypt(7, "token", "s3cret")];
    let mut of_other = manifest(7, vec![]);
    of_other.inputs["component"] = "web".into();
    let why = world.refused(&of_other, &good);
    assert!(why.contains("not for the job plan of \"web\""), "{why}");
    let mut action = manifest(7, vec![]);
    (action.kind, action.inputs["action"]) = (schemas::runner::JobKind::Action, "db".into());
    let why = world.refused(&action, &good);
    assert!(why.contains("not for the job action of \"action:db\""), "{why}");
}

#[test]
fn a_reference_must_name_the_place_of_its_placeholder() {
    let world = world();
    let good = [world.encrypt(7, "token", "s3cret")];
    let changes: [fn(&mut Manifest); 10] = [
        |manifest| manifest.secrets[0].pointer = "/inputs/component".into(),
        |manifest| manifest.secrets[0].through = vec![Through::Trim; 17],
        |manifest| manifest.secrets[0].start = 2,
        |manifest| manifest.secrets[0].end += 1,
        |manifest| manifest.secrets[0].end = u64::MAX,
        |manifest| manifest.secrets[0].pointer = "/inputs/vars".into(),
        |manifest| manifest.secrets[0].pointer = "/plugin/name".into(),
        |manifest| manifest.secrets[0].pointer = "/env/NONE".into(),
        |manifest| manifest.inputs["vars"]["a/b"] = "other text".into(),
        |manifest| {
            let again = manifest.secrets[0].clone();
            manifest.secrets.push(again);
        },
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let mut manifest = manifest(7, vec![]);
        change(&mut manifest);
        let why = world.refused(&manifest, &good);
        assert!(why.starts_with("cannot insert the sensitive value val_"), "{at}: {why}");
    }
}

#[test]
fn an_inserted_text_has_a_maximum_size() {
    let world = world();
    for function in [Through::Indent(u32::MAX), Through::Indent(2_000_000)] {
        let mut manifest = manifest(7, vec![function]);
        let open = world.open(&manifest, &[world.encrypt(7, "token", "s3cret")]).unwrap();
        let why = fill::fill(&mut manifest, &open).unwrap_err();
        assert!(why.contains("larger than 1 MiB"), "{why}");
    }
}

#[test]
fn the_server_cannot_replace_a_value_of_the_customer() {
    let world = world();
    let by = ("root".to_owned(), crate::host::now());
    let keys = (&world.keys, world.of());
    customer::set(&world.data, keys, ("token", "s3cret"), vec![consumer("db", "*")], by).unwrap();
    let why = world.refused(&manifest(7, vec![]), &[world.encrypt(7, "token", "other")]);
    assert!(why.contains("the customer set this input"), "{why}");
}

#[test]
fn values_of_the_customer_stay_on_the_host() {
    let world = world();
    let by = ("root".to_owned(), crate::host::now());
    let of_db = vec![consumer("db", "*")];
    let keys = (&world.keys, world.of());
    customer::set(&world.data, keys, ("token", "s3cret"), of_db, by).unwrap();
    let listed = customer::list(&world.data).unwrap();
    let [value] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!((value.input.as_str(), value.set_by.as_str()), ("token", "root"));
    let file = std::fs::read_to_string(world.data.path("secrets/token.json")).unwrap();
    assert!(!file.contains("s3cret"), "{file}");
    let mut manifest = manifest(7, vec![]);
    let text = format!("é-{}-z", placeholder(value.id));
    manifest.inputs["vars"]["a/b"] = text.into();
    manifest.secrets[0].id = value.id;
    let open = world.open(&manifest, &[]).unwrap();
    assert_eq!(&*open[&value.id], "s3cret");
    manifest.inputs["component"] = "web".into();
    assert!(world.refused(&manifest, &[]).contains("not for the job plan of \"web\""));
    assert!(customer::remove(&world.data, "token").unwrap());
    assert!(!customer::remove(&world.data, "token").unwrap());
    assert!(world.refused(&manifest, &[]).contains("erased or replaced"));
}

#[test]
fn sensitive_outputs_are_encrypted_and_keep_their_ids() {
    let world = world();
    let encrypter =
        encrypt::Encrypter::of(clone(&world.keys), (LOG.into(), world.install), "db".into());
    let outputs = json!({
        "password": "s3cret", "port": 5432, "none": null, "list": ["<a>"],
        "large": "x".repeat(70 * 1024),
    });
    let outputs = || outputs.as_object().unwrap().clone();
    let (placeholders, values) = encrypter.outputs(outputs()).unwrap();
    assert!(placeholders["none"].is_null() && !placeholders.contains_key("large"));
    let all = serde_json::to_string(&(&placeholders, &values)).unwrap();
    assert!(!all.contains("s3cret") && !all.contains("5432"), "{all}");
    let job = consumer("web", "plan");
    let opener = Opener {
        data: &world.data,
        keys: Some(&world.keys),
        log_id: LOG,
        install: Some(world.install),
    };
    let open = |name: &str| {
        let value = values.iter().find(|value| value.name == name).unwrap();
        opener.decrypt(value, &job).unwrap().to_string()
    };
    assert_eq!(open("outputs.db.password"), "s3cret");
    assert_eq!(open("outputs.db.port"), "5432");
    assert_eq!(open("outputs.db.list"), "[\"\\u003ca\\u003e\"]");
    let (again, _) = encrypter.outputs(outputs()).unwrap();
    assert_eq!(again, placeholders);
    // The server cannot encrypt an output: it is signed.
    let public = world.keys.public();
    let mut forged = values[0].clone();
    forged.signed = false;
    let ciphertext = with_context(&forged, world.of(), |context| {
        public.encrypt(context, b"forged", &mut os_rng()).unwrap()
    });
    forged.ciphertext = Some(Ciphertext(ciphertext));
    // Readable, but not by its name: the install signs outputs.
    assert!(opener.decrypt(&forged, &job).is_ok());
    assert!(opener.check_writer(&values[0]).is_ok());
    let refusal = opener.check_writer(&forged).unwrap_err();
    assert!(refusal.detail.contains("an output is signed"), "{}", refusal.detail);
    forged.signed = true;
    assert!(opener.decrypt(&forged, &job).is_err());
}
