//! Sensitive values of the install. The server stores them encrypted, and the agent decrypts those
//! that a manifest refers to. The shim inserts them before the plugin starts.
//!
//! Values that the customer set are in [`customer`]: they never leave the host.
pub mod customer;
pub(crate) mod encrypt;
pub(crate) mod fill;

use std::collections::BTreeMap;

use domain::ids::{InstallId, ValueId};
use install_keys::{InstallKeys, Of, Value, Writer};
use schemas::{
    manifest::Manifest,
    runner::RefusedBy,
    secret::{Consumer, EncryptedValue, MAX_CIPHERTEXT_BYTES, consumer_of},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

use crate::{data::Data, policy::Refusal};

/// Rule that a refusal names.
const RULE: &str = "secret_reference";

/// Values in clear text, by their ids.
pub type OpenValues = BTreeMap<ValueId, SecretText>;

/// Value in clear text. It is serialized only for the order of a shim, and never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(Zeroizing<String>);

impl std::ops::Deref for SecretText {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretText")
    }
}

impl Serialize for SecretText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(|text| SecretText(Zeroizing::new(text)))
    }
}

/// Install whose values are decrypted.
pub(crate) struct Opener<'a> {
    /// Data directory, with the values of the customer.
    pub data: &'a Data,
    /// Keys of the install. `None` for a build runner.
    pub keys: Option<&'a InstallKeys>,
    pub log_id: &'a str,
    pub install: Option<InstallId>,
}

impl Opener<'_> {
    /// Decrypts the values that a manifest refers to.
    ///
    /// # Errors
    /// A refusal that names the value, if it is absent, was moved or changed, or is not for this job.
    pub(crate) fn open(
        &self,
        manifest: &Manifest,
        received: &[EncryptedValue],
    ) -> Result<OpenValues, Refusal> {
        let mut open = OpenValues::new();
        if manifest.secrets.is_empty() {
            return Ok(open);
        }
        fill::check(manifest).map_err(refusal)?;
        let job = consumer_of(manifest);
        for reference in &manifest.secrets {
            let id = reference.id;
            if open.contains_key(&id) {
                continue;
            }
            let value = match customer::find(self.data, id)
                .map_err(|why| refusal(why.to_string()))?
            {
                Some(of_customer) => of_customer,
                None => {
                    let value = received.iter().find(|value| value.id == id);
                    let value = value.cloned().ok_or_else(|| {
                        refusal(format!(
                            "the server sent no sensitive value {id}; it was erased or replaced, or the customer removed \
                             it; set the value again, then deploy again"
                        ))
                    })?;
                    self.check_writer(&value)?;
                    value
                }
            };
            open.insert(id, self.decrypt(&value, &job)?);
        }
        Ok(open)
    }

    /// Refuses a value that its writer cannot have written: everyone has the public key of the
    /// install, so only a signature shows that the install wrote an output.
    fn check_writer(&self, value: &EncryptedValue) -> Result<(), Refusal> {
        let EncryptedValue { id, name, signed, ciphertext, .. } = value;
        // `decrypt` refuses a value without content.
        if ciphertext.is_none() {
            return Ok(());
        }
        let why = match name.split_once('.') {
            Some(("outputs", _)) if *signed => return Ok(()),
            Some(("outputs", _)) => "an output is signed by the install, and this one is not",
            Some(("inputs", input)) => match customer::has(self.data, input) {
                true => "the customer set this input, so the runner takes no value of the server",
                false if *signed => "the server sends no input that the install signed",
                false => return Ok(()),
            },
            Some(_) | None => "its name belongs to no input and no output",
        };
        Err(refusal(format!("cannot use the sensitive value {name} ({id}): {why}")))
    }

    fn decrypt(&self, value: &EncryptedValue, job: &Consumer) -> Result<SecretText, Refusal> {
        let EncryptedValue { id, name, .. } = value;
        let wrong =
            |why: String| refusal(format!("cannot use the sensitive value {name} ({id}): {why}"));
        if !Consumer::any_permits(&value.consumers, &job.component, &job.job_kind) {
            let Consumer { component, job_kind } = job;
            return Err(wrong(format!(
                "it is not for the job {job_kind} of {component:?}; set it again for this component"
            )));
        }
        let (Some(keys), Some(install)) = (self.keys, self.install) else {
            return Err(wrong("this runner has no keys of an install".into()));
        };
        let Some(ciphertext) = &value.ciphertext else {
            return Err(wrong(
                "the customer set it on another host, or removed it; set it again with `stead-runner secret set`".into(),
            ));
        };
        if ciphertext.0.len() > MAX_CIPHERTEXT_BYTES {
            return Err(wrong("it is larger than 64 KiB".into()));
        }
        let of = Of { log_id: self.log_id, install };
        let plain = with_context(value, of, |context| keys.decrypt(context, &ciphertext.0));
        let plain = plain.map_err(|error| wrong(error.to_string()))?;
        match std::str::from_utf8(&plain) {
            Ok(text) => Ok(SecretText(Zeroizing::new(text.to_owned()))),
            Err(_) => Err(wrong("it is not UTF-8".into())),
        }
    }
}

/// Builds the associated data of a value.
pub(crate) fn with_context<T>(
    value: &EncryptedValue,
    of: Of<'_>,
    then: impl FnOnce(&Value<'_>) -> T,
) -> T {
    let consumers: Vec<_> = value
        .consumers
        .iter()
        .map(|one| install_keys::Consumer { component: &one.component, job_kind: &one.job_kind })
        .collect();
    let writer = if value.signed { Writer::Install } else { Writer::PublicKeyHolder };
    let id = value.id.to_string();
    then(&Value { of, id: &id, name: &value.name, consumers: &consumers, writer })
}

fn refusal(detail: String) -> Refusal {
    Refusal { by: RefusedBy::Verification, rule: RULE.into(), detail }
}

#[cfg(test)]
mod tests;
