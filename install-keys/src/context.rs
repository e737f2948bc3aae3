//! Associated data: what a ciphertext is, and where it belongs.
//!
//! A reader builds them from what it expects, never from the ciphertext. Their encoding is
//! canonical: a label, then each field with its length.
use domain::ids::{ExecutionId, InstallId, JobId};
use sha2::{Digest as _, Sha256};

/// Install that data belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Of<'a> {
    /// Id of the server's log.
    pub log_id: &'a str,
    /// Install within that log.
    pub install: InstallId,
}

/// Number that excludes former writers: the position of the claim in one epoch of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    /// Restore counter of the log.
    pub epoch: u64,
    /// Position of the claim.
    pub position: u64,
}

/// Terraform state of one component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State<'a> {
    /// Install of the component.
    pub of: Of<'a>,
    /// Name of the component, or `sandbox`.
    pub component: &'a str,
    /// Lineage that Terraform assigned.
    pub lineage: &'a str,
    /// Serial within the lineage.
    pub serial: u64,
    /// Fence of the writer.
    pub fence: Fence,
}

/// Plan file that waits for its approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan<'a> {
    /// Install of the component.
    pub of: Of<'a>,
    /// Name of the component, or `sandbox`.
    pub component: &'a str,
    /// Job that created the plan.
    pub job: JobId,
    /// SHA-256 of the plan file.
    pub sha256: [u8; 32],
}

/// State that Terraform could not write, kept until a user resolves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rescue<'a> {
    /// Install of the component.
    pub of: Of<'a>,
    /// Name of the component, or `sandbox`.
    pub component: &'a str,
    /// Execution that left the state behind.
    pub execution: ExecutionId,
}

/// Data of one component, encrypted and signed by its jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComponentData<'a> {
    /// Terraform state.
    State(State<'a>),
    /// Plan file.
    Plan(Plan<'a>),
    /// State that Terraform could not write.
    Rescue(Rescue<'a>),
}

/// Sensitive value of an install.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value<'a> {
    /// Install of the value.
    pub of: Of<'a>,
    /// Id of the value, unique within the install.
    pub id: &'a str,
    /// Name of the input, secret or output.
    pub name: &'a str,
    /// Jobs that may use the value. Their order does not matter.
    pub consumers: &'a [Consumer<'a>],
    /// Party that encrypted the value.
    pub writer: Writer,
}

/// Jobs that may use a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Consumer<'a> {
    /// Name of the component.
    pub component: &'a str,
    /// Kind of the job, for example `apply`.
    pub job_kind: &'a str,
}

/// Party that encrypted a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// The install: the value is signed.
    Install,
    /// A party that has only the public key, for example the vendor. The value is confidential, but
    /// nothing proves its origin.
    PublicKeyHolder,
}

impl<'a> ComponentData<'a> {
    /// Returns the component that the data belongs to.
    pub fn component(&self) -> &'a str {
        match self {
            ComponentData::State(state) => state.component,
            ComponentData::Plan(plan) => plan.component,
            ComponentData::Rescue(rescue) => rescue.component,
        }
    }

    pub(crate) fn encode(&self) -> Context {
        match self {
            ComponentData::State(state) => {
                let mut encoder = Encoder::for_component("state", &state.of, state.component);
                encoder.bytes(state.lineage.as_bytes()).number(state.serial);
                encoder.number(state.fence.epoch).number(state.fence.position);
                Context::new(Kind::State, true, encoder)
            }
            ComponentData::Plan(plan) => {
                let mut encoder = Encoder::for_component("plan", &plan.of, plan.component);
                encoder.bytes(plan.job.to_string().as_bytes()).bytes(&plan.sha256);
                Context::new(Kind::Plan, true, encoder)
            }
            ComponentData::Rescue(rescue) => {
                let mut encoder = Encoder::for_component("rescue", &rescue.of, rescue.component);
                encoder.bytes(rescue.execution.to_string().as_bytes());
                Context::new(Kind::Rescue, true, encoder)
            }
        }
    }
}

impl Value<'_> {
    pub(crate) fn encode(&self) -> Context {
        let mut encoder = Encoder::new("value");
        encoder.of(&self.of).bytes(self.id.as_bytes()).bytes(self.name.as_bytes());
        let mut consumers = self.consumers.to_vec();
        consumers.sort_unstable();
        consumers.dedup();
        encoder.number(consumers.len() as u64);
        for consumer in &consumers {
            encoder.bytes(consumer.component.as_bytes()).bytes(consumer.job_kind.as_bytes());
        }
        let (writer, is_signed): (&[u8], bool) = match self.writer {
            Writer::Install => (b"install", true),
            Writer::PublicKeyHolder => (b"public_key_holder", false),
        };
        encoder.bytes(writer);
        Context::new(Kind::Value, is_signed, encoder)
    }
}

/// Kind of the encrypted data, as in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    State = 1,
    Plan = 2,
    Rescue = 3,
    Value = 4,
}

/// Encoded associated data.
pub(crate) struct Context {
    pub(crate) kind: Kind,
    pub(crate) is_signed: bool,
    pub(crate) encoded: Vec<u8>,
}

impl Context {
    fn new(kind: Kind, is_signed: bool, encoder: Encoder) -> Self {
        Context { kind, is_signed, encoded: encoder.finish() }
    }

    /// Returns the digest that the header contains, to recognize data of another context.
    pub(crate) fn digest(&self) -> [u8; 32] {
        Sha256::digest(&self.encoded).into()
    }
}

/// Encoder of a label and length-prefixed fields.
pub(crate) struct Encoder(Vec<u8>);

impl Encoder {
    /// Starts with a label, which separates the purposes.
    pub(crate) fn new(label: &str) -> Self {
        let mut encoder = Encoder(b"stead/install-keys/v1\n".to_vec());
        encoder.bytes(label.as_bytes());
        encoder
    }

    fn for_component(label: &str, of: &Of<'_>, component: &str) -> Self {
        let mut encoder = Encoder::new(label);
        encoder.of(of).bytes(component.as_bytes());
        encoder
    }

    pub(crate) fn of(&mut self, of: &Of<'_>) -> &mut Self {
        self.bytes(of.log_id.as_bytes()).bytes(of.install.to_string().as_bytes())
    }

    pub(crate) fn bytes(&mut self, field: &[u8]) -> &mut Self {
        self.0.extend((field.len() as u64).to_be_bytes());
        self.0.extend(field);
        self
    }

    pub(crate) fn number(&mut self, number: u64) -> &mut Self {
        self.bytes(&number.to_be_bytes())
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}
