//! Encrypts values of sensitive inputs to the pinned keys of an install. The server gets only
//! ciphertexts.
use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
};

use app_config::{accepts, model::InputKind};
use domain::{ids::ValueId, secret::MAX_VALUE_BYTES};
use install_keys::{Consumer, Of, PublicKeys, Value, Writer, os_rng};
use schemas::{
    control::installs::{Install, SensitiveInput, SensitiveInputsQuery},
    secret::{Ciphertext, EncryptedValue, input_name},
};
use ulid::Ulid;

use crate::{
    failure::Failure,
    pins::{PinStatus, Pins, check_named},
    settings::CommandContext,
};

/// Values to set, in clear text.
type Texts = BTreeMap<String, String>;

/// Reads `NAME=FILE` options: the value is the content of the file without one newline at its end.
/// `-` reads standard input.
pub(super) fn read(options: &[(String, String)]) -> Result<Texts, Failure> {
    let mut texts = Texts::new();
    if options.iter().filter(|(_, file)| file == "-").count() > 1 {
        let why = "cannot read the values: standard input can be the value of one input\n  try: files for the others";
        return Err(Failure::Usage(why.into()));
    }
    for (name, file) in options {
        let wrong = |why: String| Failure::Usage(format!("cannot read the value of {name}: {why}"));
        let limit = MAX_VALUE_BYTES as u64 + 2;
        let mut text = String::new();
        let read = if file == "-" {
            io::stdin().take(limit).read_to_string(&mut text)
        } else {
            fs::File::open(file).and_then(|opened| opened.take(limit).read_to_string(&mut text))
        };
        read.map_err(|error| wrong(format!("{file}: {error}")))?;
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        if texts.insert(name.clone(), text.to_owned()).is_some() {
            return Err(wrong("the command sets it twice\n  try: one --secret per input".into()));
        }
    }
    Ok(texts)
}

/// Encrypts the values in `secret`, and those of sensitive inputs in `inputs`, which it removes there.
pub(super) async fn encrypt(
    context: &CommandContext,
    (install, config_version): (&str, Option<u32>),
    inputs: &mut BTreeMap<String, Option<String>>,
    secret: Texts,
) -> Result<Vec<EncryptedValue>, Failure> {
    if secret.is_empty() && inputs.values().all(Option::is_none) {
        return Ok(vec![]);
    }
    let query = SensitiveInputsQuery { config_version, min_position: None };
    let known = context.client.sensitive_inputs(install, &query).await?;
    let mut texts = secret;
    for input in &known.inputs {
        if let Some(Some(text)) = inputs.get(&input.name).cloned() {
            inputs.remove(&input.name);
            if texts.insert(input.name.clone(), text).is_some() {
                let name = &input.name;
                return Err(Failure::Usage(format!(
                    "cannot set {name}: the command sets it twice\n  try: only --secret {name}=FILE"
                )));
            }
        }
    }
    if texts.is_empty() {
        return Ok(vec![]);
    }
    let named = install;
    let install = context.client.install(named).await?;
    check_named(&install, named)?;
    let keys = pinned_keys(&install, &Pins::read()?, &texts)?;
    let mut encrypted = vec![];
    for (name, text) in &texts {
        let input = known.inputs.iter().find(|input| input.name == *name).ok_or_else(|| {
            let (name, version) = (name, known.config_version);
            Failure::Usage(format!(
                "cannot encrypt {name}: version {version} has no sensitive input {name}\n  try: --input {name}=VALUE for \
                 another input"
            ))
        })?;
        encrypted.push(encrypted_value(&install, &keys, input, text)?);
    }
    for (value, input) in encrypted.iter().zip(texts.keys()) {
        let mut jobs: Vec<&str> =
            value.consumers.iter().map(|one| one.component.as_str()).collect();
        jobs.dedup();
        let jobs =
            if jobs.is_empty() { "no job: nothing reads it".into() } else { jobs.join(", ") };
        context.screen.remark(&format!("Encrypted {input} for {jobs}"));
    }
    Ok(encrypted)
}

/// Returns the public keys, if the server returned the pinned ones.
fn pinned_keys(install: &Install, pins: &Pins, texts: &Texts) -> Result<PublicKeys, Failure> {
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
    PublicKeys::parse(keys.generation, &keys.encryption_key, &keys.signing_key)
        .ok_or_else(|| refused(other_keys(name)))
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
