//! Inventory: the state of a component, in a Secret of its cluster. It lists the objects of the
//! component, so that a deploy can remove objects that the manifest no longer contains.

use base64::{Engine, engine::general_purpose::STANDARD};
use futures::future::try_join_all;
use schemas::plugin::StateMark;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use ulid::Ulid;

use crate::{
    cluster::Cluster,
    failure::{Failure, Outcome},
    kinds::Kind,
    object::{ObjectRef, metadata},
    settings::Component,
};

/// Namespace of all inventories.
pub const NAMESPACE: &str = "stead";
const SECRET_TYPE: &str = "stead.dev/inventory";
/// Key of its content in the Secret.
pub const KEY: &str = "inventory.json";
/// Maximum number of attempts to write an inventory after transient errors.
const WRITE_ATTEMPTS: u32 = 5;

/// Objects of one component, with the lineage and serial of this state.
#[derive(Debug)]
pub struct Inventory {
    name: String,
    /// Resource version of the Secret. `None` before it exists.
    resource_version: Option<String>,
    content: Content,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Content {
    install: String,
    component: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lineage: Option<String>,
    serial: u64,
    objects: Vec<Entry>,
    /// Further state of a plugin.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    details: Value,
}

/// Object of the inventory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    #[serde(flatten)]
    pub reference: ObjectRef,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub wave: i32,
    /// UID, from the first apply on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    pub result: EntryResult,
}

/// Progress of the last apply for one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryResult {
    /// The apply may not have reached the object.
    Pending,
    Applied,
    Ready,
    /// The object is being deleted.
    Deleting,
}

impl Entry {
    /// Returns whether the entry refers to this live object. An entry without a UID refers to none:
    /// the apply ended before it reached the object, and another owner can have created it since.
    pub fn refers_to(&self, live: Option<&Value>) -> bool {
        let uid = live.and_then(|live| metadata(live, "uid"));
        uid.is_some() && self.uid.as_deref() == uid
    }
}

fn is_zero(wave: &i32) -> bool {
    *wave == 0
}

impl Inventory {
    /// Reads the inventory. A component without one has an empty inventory without a lineage.
    pub async fn load<S>(cluster: &Cluster, component: &Component<S>) -> Outcome<Self> {
        let name = secret_name(&component.install, &component.name);
        let secret = cluster.get(&Kind::secret(), Some(NAMESPACE), &name).await?;
        let Some(secret) = secret else {
            let content = Content {
                install: component.install.clone(),
                component: component.name.clone(),
                ..Content::default()
            };
            return Ok(Inventory { name, resource_version: None, content });
        };
        let corrupt = || {
            Failure::failed(format!(
                "cannot read the inventory: the Secret {NAMESPACE}/{name} is corrupt; restore it \
                 from a backup of the cluster"
            ))
        };
        let text = secret["data"][KEY].as_str().ok_or_else(corrupt)?;
        let content = STANDARD.decode(text).map_err(|_| corrupt())?;
        let content: Content = serde_json::from_slice(&content).map_err(|_| corrupt())?;
        if content.install != component.install || content.component != component.name {
            return Err(corrupt());
        }
        let version = resource_version(&secret);
        Ok(Inventory { name, resource_version: version, content })
    }

    pub fn mark(&self) -> StateMark {
        StateMark { lineage: self.content.lineage.clone(), serial: self.content.serial }
    }

    /// Returns the further state of a plugin.
    pub fn details(&self) -> &Value {
        &self.content.details
    }

    /// Replaces the further state of a plugin. [`Inventory::save`] makes it durable.
    pub fn set_details(&mut self, details: Value) {
        self.content.details = details;
    }

    pub fn entries(&self) -> &[Entry] {
        &self.content.objects
    }

    pub fn entry(&self, object: &ObjectRef) -> Option<&Entry> {
        self.content.objects.iter().find(|entry| entry.reference.is_same(object))
    }

    /// Increases the serial before the first effect, which makes every earlier plan stale. Adds the
    /// objects that the apply may create.
    pub async fn begin(
        &mut self,
        cluster: &Cluster,
        planned: impl Iterator<Item = (ObjectRef, i32)>,
    ) -> Outcome<()> {
        #[expect(clippy::disallowed_methods, reason = "the only id that the plugin creates")]
        self.content.lineage.get_or_insert_with(|| Ulid::new().to_string());
        for (reference, wave) in planned {
            let known =
                self.content.objects.iter_mut().find(|one| one.reference.is_same(&reference));
            match known {
                // The manifest can name another version of the same group.
                Some(entry) => (entry.reference, entry.wave) = (reference, wave),
                None => {
                    let result = EntryResult::Pending;
                    self.content.objects.push(Entry { reference, wave, uid: None, result });
                }
            }
        }
        match self.write(cluster).await? {
            Written::Saved => Ok(()),
            Written::Changed(message) => Err(Failure::stale(message)),
        }
    }

    /// Records the result of an object. [`Inventory::save`] makes it durable.
    pub fn record(&mut self, object: &ObjectRef, result: EntryResult, uid: Option<&str>) {
        let entries = &mut self.content.objects;
        if let Some(entry) = entries.iter_mut().find(|entry| entry.reference.is_same(object)) {
            entry.result = result;
            if let Some(uid) = uid {
                entry.uid = Some(uid.to_owned());
            }
        }
    }

    /// Removes an object that the component no longer owns.
    pub fn remove(&mut self, object: &ObjectRef) {
        self.content.objects.retain(|entry| !entry.reference.is_same(object));
    }

    /// Writes the inventory with the next serial.
    ///
    /// # Errors
    /// Fails if another writer changed the inventory since this process read it.
    pub async fn save(&mut self, cluster: &Cluster) -> Outcome<()> {
        match self.write(cluster).await? {
            Written::Saved => Ok(()),
            Written::Changed(message) => Err(Failure::failed(message)),
        }
    }

    /// Writes the inventory. An error does not tell whether the server stored a write, so this
    /// reads the Secret after one.
    async fn write(&mut self, cluster: &Cluster) -> Outcome<Written> {
        self.content.serial += 1;
        let kind = Kind::secret();
        if self.resource_version.is_none() {
            create_namespace(cluster).await?;
        }
        let mut attempts = 0;
        loop {
            attempts += 1;
            let secret = self.secret()?;
            let written = match self.resource_version {
                Some(_) => cluster.replace(&kind, Some(NAMESPACE), &self.name, &secret).await,
                None => cluster.create(&kind, Some(NAMESPACE), &secret, false).await,
            };
            let error = match written {
                Ok(stored) => {
                    self.resource_version = resource_version(&stored);
                    return Ok(Written::Saved);
                }
                Err(error) => error,
            };
            if !error.has_code(409) && !error.is_transient() {
                return Err(error.during(&format!("write the inventory {NAMESPACE}/{}", self.name)));
            }
            let stored = cluster.get(&kind, Some(NAMESPACE), &self.name).await?;
            let version = stored.as_ref().and_then(resource_version);
            if stored.is_some_and(|stored| stored["data"] == secret["data"]) {
                self.resource_version = version;
                return Ok(Written::Saved);
            }
            if error.has_code(409) || version != self.resource_version {
                return Ok(Written::Changed(format!(
                    "cannot write the inventory {NAMESPACE}/{}: another process changed it; check \
                     that only one runner deploys this install, and plan again",
                    self.name
                )));
            }
            if attempts == WRITE_ATTEMPTS {
                return Err(error.during(&format!("write the inventory {NAMESPACE}/{}", self.name)));
            }
            cluster.back_off(attempts).await?;
        }
    }

    /// Checks by a dry run that the credentials can write the inventory.
    pub async fn check_write(&self, cluster: &Cluster) -> Outcome<()> {
        if cluster.namespace(NAMESPACE).await?.is_none() {
            let created = cluster.create(&Kind::namespace(), None, &namespace(), true).await;
            return match created {
                Err(error) if !error.has_code(409) => {
                    Err(error.during(&format!("create the namespace {NAMESPACE}")))
                }
                Ok(_) | Err(_) => Ok(()),
            };
        }
        let (kind, secret) = (Kind::secret(), self.secret()?);
        let verbs: &[&str] =
            if self.resource_version.is_some() { &["update"] } else { &["create", "update"] };
        let reviews = verbs.iter().map(|verb| cluster.is_allowed(verb, &kind, Some(NAMESPACE)));
        for (verb, is_allowed) in verbs.iter().zip(try_join_all(reviews).await?) {
            if !is_allowed {
                return Err(Failure::failed(format!(
                    "cannot write the inventory: RBAC denies {verb} on secrets in {NAMESPACE}; \
                     allow it for the kubeconfig's user"
                )));
            }
        }
        // A quota or a webhook can reject a write that RBAC allows.
        if self.resource_version.is_none() {
            let created = cluster.create(&kind, Some(NAMESPACE), &secret, true).await;
            if let Err(error) = created.map(drop)
                && !error.has_code(409)
            {
                let operation = format!("write the inventory {NAMESPACE}/{}", self.name);
                return Err(error.during(&operation));
            }
        }
        Ok(())
    }

    fn secret(&self) -> Outcome<Value> {
        let content = serde_json::to_vec(&self.content)
            .map_err(|e| Failure::failed(format!("cannot serialize the inventory: {e}")))?;
        let mut metadata = json!({
            "name": self.name,
            "namespace": NAMESPACE,
            "labels": { "app.kubernetes.io/managed-by": "stead" },
            "annotations": {
                "stead.dev/install": self.content.install,
                "stead.dev/component": self.content.component,
            },
        });
        if let Some(version) = &self.resource_version {
            metadata["resourceVersion"] = json!(version);
        }
        Ok(json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "type": SECRET_TYPE,
            "data": { KEY: STANDARD.encode(content) },
        }))
    }
}

/// Result of a write.
enum Written {
    Saved,
    /// Another process wrote in the meantime.
    Changed(String),
}

fn resource_version(secret: &Value) -> Option<String> {
    metadata(secret, "resourceVersion").map(str::to_owned)
}

fn namespace() -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } })
}

async fn create_namespace(cluster: &Cluster) -> Outcome<()> {
    if cluster.namespace(NAMESPACE).await?.is_some() {
        return Ok(());
    }
    match cluster.create(&Kind::namespace(), None, &namespace(), false).await {
        Ok(_) => Ok(()),
        Err(error) if error.has_code(409) => Ok(()),
        Err(error) => Err(error.during(&format!("create the namespace {NAMESPACE}"))),
    }
}

/// Returns whether an object may be an inventory. No component brings one: it would decide about the
/// objects of another component.
pub fn is_reserved(object: &ObjectRef) -> bool {
    object.is_secret() && object.namespace.as_deref() == Some(NAMESPACE)
}

/// Returns the name of the Secret. A digest keeps it unique, because names of Secrets allow fewer
/// characters than names of components.
fn secret_name(install: &str, component: &str) -> String {
    let plain = |text: &str| {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let text = text.to_ascii_lowercase();
        text.chars().map(|c| if is_plain(c) { c } else { '-' }).take(80).collect::<String>()
    };
    let digest = Sha256::digest(format!("{install}/{component}"));
    format!("inventory-{}-{}-{}", plain(install), plain(component), hex::encode(&digest[..4]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_readable_and_distinct() {
        let name = secret_name("ins_01ABC", "front_page");
        assert!(name.starts_with("inventory-ins-01abc-front-page-"), "{name}");
        assert_ne!(name, secret_name("ins_01ABC", "front-page"));
        assert!(secret_name(&"i".repeat(500), &"c".repeat(500)).len() < 253);
    }

    #[test]
    fn entries_have_a_compact_form() {
        let entry = Entry {
            reference: ObjectRef {
                api_version: "v1".into(),
                kind: "ConfigMap".into(),
                namespace: Some("shop".into()),
                name: "a".into(),
            },
            wave: 0,
            uid: None,
            result: EntryResult::Pending,
        };
        let expected = json!({ "api_version": "v1", "kind": "ConfigMap", "namespace": "shop",
                               "name": "a", "result": "pending" });
        assert_eq!(json!(entry), expected);
    }
}
