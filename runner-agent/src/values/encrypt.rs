//! Encrypts the sensitive outputs of a component to the keys of its install.
use std::io;

use domain::{
    go_text,
    ids::{InstallId, ValueId},
};
use install_keys::{DigestUse, InstallKeys, Of, os_rng};
use schemas::{
    manifest::Manifest,
    runner::VALUES_BYTES,
    secret::{
        Ciphertext, EncryptedValue, MAX_VALUE_BYTES, all_jobs, consumer_of, output_name,
        placeholder,
    },
};
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::with_context;
use crate::{data::Data, enrol, seed};

/// Encrypts the outputs of one component.
#[derive(Debug)]
pub(crate) struct Encrypter {
    keys: InstallKeys,
    log_id: String,
    install: InstallId,
    component: String,
}

impl Encrypter {
    #[cfg(test)]
    pub(crate) fn of(
        keys: InstallKeys,
        (log_id, install): (String, InstallId),
        component: String,
    ) -> Self {
        Encrypter { keys, log_id, install, component }
    }

    /// Opens the keys of the install for a job. Returns `None` for a build runner.
    pub(crate) fn open(data: &Data, manifest: &Manifest) -> io::Result<Option<Self>> {
        let (Some(identity), Some(keys)) = (enrol::stored_identity(data)?, seed::open(data)?)
        else {
            return Ok(None);
        };
        let Some(install) = identity.install else { return Ok(None) };
        let component = consumer_of(manifest).component;
        Ok(Some(Encrypter { keys, log_id: identity.log_id, install, component }))
    }

    /// Returns a placeholder for each output, and the encrypted values. Leaves out outputs that are
    /// too large.
    pub(crate) fn outputs(
        &self,
        outputs: Map<String, Value>,
    ) -> io::Result<(Map<String, Value>, Vec<EncryptedValue>)> {
        let (mut placeholders, mut values, mut left) = (Map::new(), Vec::new(), VALUES_BYTES);
        for (output, value) in outputs {
            if value.is_null() {
                placeholders.insert(output, value);
                continue;
            }
            let (json, text) = match value {
                Value::String(text) => (false, Zeroizing::new(text)),
                Value::Number(_) | Value::Bool(_) => (false, Zeroizing::new(value.to_string())),
                Value::Array(_) | Value::Object(_) | Value::Null => {
                    (true, Zeroizing::new(go_text::json(&value)))
                }
            };
            if text.len() > MAX_VALUE_BYTES || text.len() + 1024 > left {
                continue;
            }
            left -= text.len() + 1024;
            let encrypted = self.encrypt(&output, &text, json)?;
            placeholders.insert(output, placeholder(encrypted.id).into());
            values.push(encrypted);
        }
        Ok((placeholders, values))
    }

    fn encrypt(&self, output: &str, text: &str, json: bool) -> io::Result<EncryptedValue> {
        let name = output_name(&self.component, output);
        let id = self.id(&name, text, json);
        let consumers = all_jobs();
        let mut value =
            EncryptedValue { id, name, consumers, signed: true, json, ciphertext: None };
        let of = Of { log_id: &self.log_id, install: self.install };
        let ciphertext = with_context(&value, of, |context| {
            self.keys.encrypt(context, text.as_bytes(), &mut os_rng())
        });
        value.ciphertext = Some(Ciphertext(ciphertext.map_err(io::Error::other)?));
        Ok(value)
    }

    /// Returns the id of a value: a keyed digest, so that an unchanged output keeps its id and plans
    /// no other component. Without the key, it reveals nothing about the value.
    fn id(&self, name: &str, text: &str, json: bool) -> ValueId {
        let kind = [0, json.into()];
        let bytes = Zeroizing::new([name.as_bytes(), &kind, text.as_bytes()].concat());
        let digest = self.keys.digest(DigestUse::Plaintext, &bytes).bytes();
        let mut number = [0; 16];
        number.copy_from_slice(&digest[..16]);
        ValueId(ulid::Ulid(u128::from_be_bytes(number)))
    }
}
