//! Output of Terraform's plan and apply with varying ids and times. Every run generates the same
//! output.
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use schemas::runner::{LogRecord, LogStream};

/// Bytes that a runner sends at once.
const CHUNK: usize = 64 * 1024;
const SEED: u64 = 20_261_122;

/// Types of resources, with the attributes that a plan shows.
const KINDS: [(&str, &[&str]); 5] = [
    (
        "aws_s3_bucket",
        &[
            "acceleration_status",
            "arn",
            "bucket",
            "bucket_domain_name",
            "force_destroy",
            "hosted_zone_id",
            "id",
            "object_lock_enabled",
            "policy",
            "region",
            "request_payer",
            "tags_all",
            "website_endpoint",
        ],
    ),
    (
        "aws_security_group",
        &[
            "arn",
            "description",
            "egress",
            "id",
            "ingress",
            "name",
            "name_prefix",
            "owner_id",
            "tags_all",
            "vpc_id",
        ],
    ),
    (
        "aws_db_instance",
        &[
            "address",
            "allocated_storage",
            "apply_immediately",
            "arn",
            "availability_zone",
            "ca_cert_identifier",
            "db_name",
            "endpoint",
            "engine",
            "engine_version",
            "id",
            "instance_class",
            "kms_key_id",
            "port",
            "storage_encrypted",
            "username",
            "vpc_security_group_ids",
        ],
    ),
    (
        "aws_iam_role",
        &[
            "arn",
            "assume_role_policy",
            "create_date",
            "force_detach_policies",
            "id",
            "max_session_duration",
            "name",
            "path",
            "unique_id",
        ],
    ),
    (
        "kubernetes_deployment_v1",
        &[
            "id",
            "wait_for_rollout",
            "metadata",
            "generation",
            "name",
            "namespace",
            "resource_version",
            "uid",
            "min_ready_seconds",
            "paused",
            "progress_deadline_seconds",
            "replicas",
        ],
    ),
];

/// Log records, one line each, of one run after the other.
pub struct Output {
    pub bytes: Vec<u8>,
    /// Number of bytes in the text of the lines.
    pub text: usize,
}

impl Output {
    /// Generates at least this number of bytes.
    pub fn of(bytes: usize) -> Output {
        let mut writer = Writer {
            random: StdRng::seed_from_u64(SEED),
            output: Output { bytes: Vec::with_capacity(bytes + CHUNK), text: 0 },
            number: 0,
            micros: 0,
        };
        while writer.output.bytes.len() < bytes {
            writer.run();
        }
        writer.output
    }

    /// Chunks as they are sent. The last one may be shorter.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks(CHUNK)
    }

    pub fn lines(&self) -> usize {
        self.bytes.iter().filter(|byte| **byte == b'\n').count()
    }
}

struct Writer {
    random: StdRng,
    output: Output,
    number: u64,
    micros: u64,
}

impl Writer {
    /// Generates one plan and its apply.
    fn run(&mut self) {
        (self.number, self.micros) = (0, 0);
        let resources = self.random.gen_range(20..60);
        let resources: Vec<_> = (0..resources).map(|_| self.resource()).collect();
        self.plan(&resources);
        self.apply(&resources);
    }

    /// Index of the type, and address of a new resource.
    fn resource(&mut self) -> (usize, String) {
        let kind = self.random.gen_range(0..KINDS.len());
        let names = ["this", "main", "api", "worker", "logs", "cache"];
        let name = names[self.random.gen_range(0..names.len())];
        let module = ["", "module.network.", "module.service[\"edge\"]."];
        let module = module[self.random.gen_range(0..module.len())];
        let key = self.random.gen_range(0..400);
        (kind, format!("{module}{}.{name}[\"{key}\"]", KINDS[kind].0))
    }

    fn plan(&mut self, resources: &[(usize, String)]) {
        let phase = "plan";
        self.line(
            phase,
            "Terraform used the selected providers to generate the following execution",
        );
        self.line(phase, "plan. Resource actions are indicated with the following symbols:");
        self.line(phase, "  + create");
        self.line(phase, "");
        self.line(phase, "Terraform will perform the following actions:");
        for (kind, address) in resources {
            let (kind, attributes) = KINDS[*kind];
            self.line(phase, "");
            self.line(phase, &format!("  # {address} will be created"));
            let name = self.id("");
            self.line(phase, &format!("  + resource \"{kind}\" \"{name}\" {{"));
            for attribute in attributes {
                let value = match self.random.gen_range(0..4) {
                    0 => format!("\"{}\"", self.id("acme-prod-")),
                    1 => self.random.gen_range(0..10_000).to_string(),
                    _ => "(known after apply)".into(),
                };
                self.line(phase, &format!("      + {attribute:<28} = {value}"));
            }
            self.line(phase, "    }");
        }
        self.line(phase, "");
        let number = resources.len();
        self.line(phase, &format!("Plan: {number} to add, 0 to change, 0 to destroy."));
    }

    fn apply(&mut self, resources: &[(usize, String)]) {
        let phase = "apply";
        for (_, address) in resources {
            self.line(phase, &format!("{address}: Creating..."));
        }
        for (_, address) in resources {
            let seconds = self.random.gen_range(1..240);
            for at in (10..seconds).step_by(10) {
                let (minutes, rest) = (at / 60, at % 60);
                let elapsed =
                    format!("{address}: Still creating... [{minutes:02}m{rest:02}s elapsed]");
                self.line(phase, &elapsed);
            }
            let id = self.id("arn:aws:iam::123456789012:role/acme-");
            self.line(phase, &format!("{address}: Creation complete after {seconds}s [id={id}]"));
        }
        let number = resources.len();
        self.line(
            phase,
            &format!("Apply complete! Resources: {number} added, 0 changed, 0 destroyed."),
        );
    }

    fn id(&mut self, prefix: &str) -> String {
        format!("{prefix}{:016x}", self.random.r#gen::<u64>())
    }

    fn line(&mut self, phase: &str, text: &str) {
        self.number += 1;
        self.micros += self.random.gen_range(5..40_000);
        let record = LogRecord {
            n: self.number,
            t: self.micros,
            s: LogStream::Out,
            p: Some(phase.into()),
            m: text.into(),
            c: false,
            omitted: None,
        };
        serde_json::to_writer(&mut self.output.bytes, &record).unwrap();
        self.output.bytes.push(b'\n');
        self.output.text += text.len() + 1;
    }
}
