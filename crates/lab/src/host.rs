//! The machine that measures, as the results file describes it.

mod cloud;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn line(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// The value of `key` in a file of `key<separator>value` lines.
fn field(path: &str, key: &str, separator: char) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(separator))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim().trim_matches('"').to_owned())
        .unwrap_or_default()
}

/// Name and home of whoever runs this process, as the system knows them.
pub fn user() -> (Option<String>, Option<String>) {
    // SAFETY: geteuid has no arguments and cannot fail.
    let uid = unsafe { libc::geteuid() }.to_string();
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = fields.find(|fields| fields.get(2) == Some(&&*uid));
    let field = |at: usize| found.as_ref()?.get(at).map(|text| (*text).to_owned());
    (field(0), field(5))
}

/// Facts of this machine. What the system does not tell is left empty.
pub fn facts() -> store::Host {
    let name = line("/proc/sys/kernel/hostname");
    let cpu_model = field("/proc/cpuinfo", "model name", ':');
    let memory_kib: u64 =
        field("/proc/meminfo", "MemTotal", ':').trim_end_matches("kB").trim().parse().unwrap_or(0);
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get()) as u32;
    let kernel = format!("Linux {}", line("/proc/sys/kernel/osrelease"));
    // The machine's own number is hashed: the file may be published.
    let identity = format!("{}\n{cpu_model}\n{cpus}\n{memory_kib}", line("/etc/machine-id"));
    let fingerprint = store::bundle::sha256(identity.as_bytes())[..16].to_owned();
    let mut facts = BTreeMap::new();
    for (key, path) in [
        ("governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        ("smt", "/sys/devices/system/cpu/smt/control"),
        ("clocksource", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        ("transparent hugepages", "/sys/kernel/mm/transparent_hugepage/enabled"),
    ] {
        let value = line(path);
        if !value.is_empty() {
            facts.insert(key.to_owned(), value);
        }
    }
    // No part of the identity: a machine is the same one under another price or with cloud-init taken off.
    let (provider, kind) = cloud::of(Path::new(cloud::DMI), Path::new(cloud::INSTANCE_DATA));
    for (key, value) in [(store::CLOUD, provider), (store::INSTANCE_TYPE, kind)] {
        if !value.is_empty() {
            facts.insert(key.to_owned(), value);
        }
    }
    store::Host {
        name,
        fingerprint,
        boot_id: line("/proc/sys/kernel/random/boot_id"),
        kernel,
        os: field("/etc/os-release", "PRETTY_NAME", '='),
        arch: std::env::consts::ARCH.to_owned(),
        cpu_model,
        cpus,
        memory_bytes: memory_kib << 10,
        facts,
    }
}
