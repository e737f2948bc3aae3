//! Encrypts values of sensitive inputs to the pinned keys of an install. The server gets only
//! ciphertexts.
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _},
    os::fd::AsFd as _,
};

use app_config::{accepts, model::InputKind};
use domain::{ids::ValueId, secret::MAX_VALUE_BYTES};
use install_keys::{Consumer, Fingerprint, Of, PublicKeys, Value, Writer, os_rng};
use schemas::{
    control::installs::{Install, SensitiveInput, SensitiveInputsQuery},
    secret::{Ciphertext, EncryptedValue, input_name},
};
use ulid::Ulid;
use zeroize::Zeroizing;

use crate::{
    failure::Failure,
    pins::{PinStatus, Pins, check_named, fingerprint},
    settings::CommandContext,
};

/// Values to set, in clear text.
type Texts = BTreeMap<String, Zeroizing<String>>;

/// Reads `NAME=FILE` options: the value is the content of the file without one newline at its end.
/// `-` reads standard input. From the first value on, other processes of the user cannot read the
/// memory of this process, and a crash does not write it to disk.
pub(super) fn read(options: &[(String, String)]) -> Result<Texts, Failure> {
    let mut texts = Texts::new();
    if !options.is_empty() {
        make_undumpable();
    }
    if options.iter().filter(|(_, file)| file == "-").count() > 1 {
        let why = "cannot read the values: standard input can be the value of one input\n  try: files for the others";
        return Err(Failure::Usage(why.into()));
    }
    for (name, file) in options {
        let wrong = |why: String| Failure::Usage(format!("cannot read the value of {name}: {why}"));
        let text = read_value(file).map_err(|error| wrong(format!("{file}: {error}")))?;
        if texts.insert(name.clone(), text).is_some() {
            return Err(wrong("the command sets it twice\n  try: one --secret per input".into()));
        }
    }
    Ok(texts)
}

fn read_value(file: &str) -> io::Result<Zeroizing<String>> {
    const LIMIT: usize = MAX_VALUE_BYTES + 2;
    let opened = match file {
        // `Stdin` would keep a copy in its buffer.
        "-" => File::from(io::stdin().as_fd().try_clone_to_owned()?),
        file => File::open(file)?,
    };
    // A buffer that grows leaves copies in memory.
    let mut text = Zeroizing::new(String::with_capacity(LIMIT));
    opened.take(LIMIT as u64).read_to_string(&mut text)?;
    let value = text.strip_suffix('\n').unwrap_or(&text);
    let length = value.strip_suffix('\r').unwrap_or(value).len();
    text.truncate(length);
    Ok(text)
}

#[cfg(target_os = "linux")]
fn make_undumpable() {
    // Every supported Linux kernel has this call.
    let _always = nix::sys::prctl::set_dumpable(false);
}

#[cfg(not(target_os = "linux"))]
fn make_undumpable() {}

/// Encrypts the values in `secret`. Rejects clear values of sensitive inputs in `inputs` before they
/// are sent, as far as the server says which inputs are sensitive.
pub(super) async fn encrypt(
    context: &CommandContext,
    (install, config_version): (&str, Option<u32>),
    inputs: &BTreeMap<String, Option<String>>,
    texts: Texts,
) -> Result<Vec<EncryptedValue>, Failure> {
    if let Some(name) = texts.keys().find(|name| inputs.contains_key(*name)) {
        return Err(Failure::Usage(format!(
            "cannot set {name}: the command changes it twice\n  try: only --secret {name}=FILE"
        )));
    }
    if texts.is_empty() && inputs.values().all(Option::is_none) {
        return Ok(vec![]);
    }
    let query = SensitiveInputsQuery { config_version, min_position: None };
    let known = context.client.sensitive_inputs(install, &query).await?;
    check_clear(inputs, &known.inputs)?;
    if texts.is_empty() {
        return Ok(vec![]);
    }
    let named = install;
    let install = context.client.install(named).await?;
    check_named(&install, named)?;
    let (keys, pinned) = pinned_keys(&install, &Pins::read()?, &texts)?;
    let mut encrypted = vec![];
    for (name, text) in &texts {
        let input = known.inputs.iter().find(|input| input.name == *name).ok_or_else(|| {
            let (name, version) = (name, known.config_version);
            Failure::Usage(format!(
                "cannot encrypt {name}: version {version} has no sensitive input {name}\n  try: --input {name}=VALUE for \
                 another input; the customer sets a secret with `stead-runner secret set {name}`"
            ))
        })?;
        encrypted.push(encrypted_value(&install, &keys, input, text)?);
    }
    for (value, input) in encrypted.iter().zip(texts.keys()) {
        context.screen.remark(&remark(input, &install, pinned, value));
    }
    Ok(encrypted)
}

/// Rejects clear values of sensitive inputs.
fn check_clear(
    inputs: &BTreeMap<String, Option<String>>,
    sensitive: &[SensitiveInput],
) -> Result<(), Failure> {
    let is_set = |name: &str| inputs.get(name).is_some_and(Option::is_some);
    match sensitive.iter().find(|input| is_set(&input.name)) {
        Some(SensitiveInput { name, .. }) => Err(Failure::Usage(format!(
            "cannot set {name}: it is sensitive, and --input and --inputs-file would send its value in clear text\n  \
             try: --secret {name}=FILE"
        ))),
        None => Ok(()),
    }
}

/// Describes an encrypted value: the holder of the keys, and the jobs that may read it.
fn remark(input: &str, install: &Install, pinned: Fingerprint, value: &EncryptedValue) -> String {
    let mut jobs: Vec<&str> = value.consumers.iter().map(|one| one.component.as_str()).collect();
    jobs.dedup();
    let jobs = if jobs.is_empty() { "no job: nothing reads it".into() } else { jobs.join(", ") };
    format!("Encrypted {input} to the keys of {} ({pinned}) for {jobs}", install.name)
}

/// Returns the public keys and their fingerprint, if the server returned the pinned ones.
fn pinned_keys(
    install: &Install,
    pins: &Pins,
    texts: &Texts,
) -> Result<(PublicKeys, Fingerprint), Failure> {
    let names = texts.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let name = &install.name;
    let refused = |why: String| Failure::Outcome(format!("cannot encrypt {names}: {why}"));
    let Some(keys) = &install.keys else {
        return Err(match pins.status(install) {
            PinStatus::NotPinned => refused(no_key(name)),
            PinStatus::Pinned | PinStatus::Differs { .. } => refused(other_keys(name)),
        });
    };
    match pins.status(install) {
        PinStatus::Pinned => {}
        PinStatus::NotPinned => {
            return Err(refused(format!(
                "the keys of {name} are not pinned, and the server could return keys of another party\n  \
                 try: ask the customer for the output of `stead-runner fingerprint` over another channel, then: \
                 stead installs pin {name} FINGERPRINT"
            )));
        }
        PinStatus::Differs { .. } => return Err(refused(other_keys(name))),
    }
    let public = PublicKeys::parse(keys.generation, &keys.encryption_key, &keys.signing_key);
    public.zip(fingerprint(install)).ok_or_else(|| refused(other_keys(name)))
}

fn other_keys(name: &str) -> String {
    format!(
        "the server returned other keys of {name} than the pinned ones\n  \
         try: ask the customer whether the keys were replaced; if they were not, the server returned keys of another party"
    )
}

/// Explains why nothing can be encrypted to an install without a runner.
pub(super) fn no_key(name: &str) -> String {
    format!(
        "{name} has no runner yet, so there is no key to encrypt to; the install waits for the value\n  \
         try: after its runner has started, stead installs pin {name} FINGERPRINT, then: \
         stead installs set-inputs {name} --secret NAME=FILE"
    )
}

#[expect(clippy::disallowed_methods, reason = "the client is the only source of these ids")]
fn new_id() -> ValueId {
    ValueId(Ulid::new())
}

fn encrypted_value(
    install: &Install,
    keys: &PublicKeys,
    input: &SensitiveInput,
    text: &str,
) -> Result<EncryptedValue, Failure> {
    let name = &input.name;
    let refused = |why: &str| Failure::Usage(format!("cannot encrypt {name}: {why}"));
    if text.is_empty() {
        return Err(refused(&format!("the value is empty\n  try: --unset {name} removes a value")));
    }
    if text.len() > MAX_VALUE_BYTES {
        return Err(refused("the value is larger than 64 KiB"));
    }
    // Only this command can check the type: the server does not know the value.
    if InputKind::parse(&input.kind).is_some_and(|kind| !accepts(kind, text)) {
        return Err(refused(&format!("the value is not of type {}", input.kind)));
    }
    let id = new_id();
    let log_id = install.keys.as_ref().map_or("", |keys| keys.log_id.as_str());
    let (id_text, value_name) = (id.to_string(), input_name(name));
    let consumers: Vec<Consumer<'_>> = input
        .readers
        .iter()
        .map(|one| Consumer { component: &one.component, job_kind: &one.job_kind })
        .collect();
    let value = Value {
        of: Of { log_id, install: install.id },
        id: &id_text,
        name: &value_name,
        consumers: &consumers,
        writer: Writer::PublicKeyHolder,
    };
    let ciphertext = keys
        .encrypt(&value, text.as_bytes(), &mut os_rng())
        .map_err(|error| refused(&error.to_string()))?;
    Ok(EncryptedValue {
        id,
        name: value_name,
        consumers: input.readers.clone(),
        signed: false,
        json: false,
        ciphertext: Some(Ciphertext(ciphertext)),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use schemas::secret::Consumer as Reader;
    use serde_json::json;

    use super::*;

    fn install(name: &str) -> Install {
        let ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
        // The base point of the curve is a valid key.
        let signing_key = format!("58{}", "66".repeat(31));
        serde_json::from_value(json!({
            "id": format!("ins_{ulid}"), "name": name, "app": format!("app_{ulid}"),
            "app_name": "shop", "config_version": 2, "state": "active", "auto_approve": false,
            "inputs": {}, "stack_outputs": {}, "components": [], "runs": [],
            "keys": {"log_id": "01LOG", "generation": 1, "encryption_key": "11".repeat(32),
                     "signing_key": signing_key},
            "created_at": "2026-11-21T01:02:03.000000Z", "position": 9,
        }))
        .unwrap()
    }

    fn input(name: &str) -> SensitiveInput {
        let reader = |kind: &str| Reader { component: "service".into(), job_kind: kind.into() };
        SensitiveInput {
            name: name.into(),
            kind: "string".into(),
            required: false,
            has_default: false,
            value: None,
            readers: vec![reader("apply"), reader("plan")],
        }
    }

    fn options(dir: &std::path::Path, name: &str, content: &str) -> (String, String) {
        let file = dir.join(name);
        fs::write(&file, content).unwrap();
        (name.to_owned(), file.display().to_string())
    }

    #[test]
    fn a_value_is_the_file_without_one_newline() {
        let dir = tempfile::tempdir().unwrap();
        let large = "x".repeat(MAX_VALUE_BYTES + 10);
        let cases = [("a", "v\n", "v"), ("b", "v\r\n", "v"), ("c", "v\n\n", "v\n"), ("d", "", "")];
        for (name, content, expected) in cases {
            let read = read(&[options(dir.path(), name, content)]).unwrap();
            assert_eq!(read[name].as_str(), expected);
        }
        let read_large = read(&[options(dir.path(), "e", &large)]).unwrap();
        assert!(read_large["e"].len() > MAX_VALUE_BYTES);
        let twice = options(dir.path(), "a", "v");
        let text = read(&[twice.clone(), twice]).unwrap_err().text();
        assert!(text.contains("the command sets it twice"), "{text}");
        let missing = ("a".to_owned(), dir.path().join("none").display().to_string());
        assert!(read(&[missing]).unwrap_err().text().contains("cannot read the value of a"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_that_reads_a_value_is_undumpable() {
        let dir = tempfile::tempdir().unwrap();
        let _texts = read(&[options(dir.path(), "a", "v")]).unwrap();
        assert!(!nix::sys::prctl::get_dumpable().unwrap());
    }

    #[test]
    fn a_clear_value_of_a_sensitive_input_is_rejected() {
        let inputs: BTreeMap<String, Option<String>> = BTreeMap::from([
            ("api_token".into(), Some("hunter2".into())),
            ("license".into(), None),
            ("size".into(), Some("2".into())),
        ]);
        let Err(Failure::Usage(text)) =
            check_clear(&inputs, &[input("license"), input("api_token")])
        else {
            panic!("accepted")
        };
        assert!(text.starts_with("cannot set api_token: it is sensitive"), "{text}");
        assert!(text.ends_with("\n  try: --secret api_token=FILE"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
        assert!(check_clear(&inputs, &[input("license"), input("other")]).is_ok());
    }

    #[test]
    fn only_the_pinned_keys_are_used_and_the_remark_names_them() {
        let (install, mut pins) = (install("acme"), Pins::default());
        let texts = Texts::from([("api_token".into(), Zeroizing::new("hunter2".into()))]);
        let refusal =
            |install: &Install, pins: &Pins| pinned_keys(install, pins, &texts).unwrap_err().text();
        assert!(refusal(&install, &pins).contains("are not pinned"));
        let shown = fingerprint(&install).unwrap();
        pins.pin(&install, shown);
        let (keys, pinned) = pinned_keys(&install, &pins, &texts).unwrap();
        assert_eq!(pinned, shown);
        let value = encrypted_value(&install, &keys, &input("api_token"), "hunter2").unwrap();
        assert_eq!(
            remark("api_token", &install, pinned, &value),
            format!("Encrypted api_token to the keys of acme ({shown}) for service")
        );
        let mut other = install.clone();
        other.keys.as_mut().unwrap().encryption_key = "22".repeat(32);
        assert!(refusal(&other, &pins).contains("other keys of acme than the pinned ones"));
    }
}
