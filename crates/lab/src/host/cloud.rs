//! The provider of a machine and the type that it sells it as, where files of this machine tell. Nobody is asked over a
//! network, and of what providers say of a machine nothing else is taken: the rest names it and its owner.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

/// What the firmware says.
pub(super) const DMI: &str = "/sys/class/dmi/id";
/// What cloud-init keeps of the provider's word for everybody to read.
pub(super) const INSTANCE_DATA: &str = "/run/cloud-init/instance-data.json";

/// Providers by how a word of their firmware begins, as `sys_vendor`, `product_name`, `bios_vendor` and `chassis_asset_tag`
/// have them; most of them are what cloud-init's `ds-identify` looks for.
const PROVIDERS: [(&str, &str); 17] = [
    ("Amazon EC2", "aws"),
    ("Google Compute Engine", "gce"),
    // The tag that all machines of Azure have, and none of those on other people's Hyper-V.
    ("7783-7084-3265-9085-8269-3286-77", "azure"),
    ("Alibaba Cloud", "aliyun"),
    ("OracleCloud.com", "oracle"),
    ("Tencent Cloud", "tencent"),
    ("Huawei Cloud", "huawei"),
    ("DigitalOcean", "digitalocean"),
    ("Hetzner", "hetzner"),
    ("Scaleway", "scaleway"),
    ("Vultr", "vultr"),
    ("Akamai", "akamai"),
    ("Linode", "akamai"),
    ("UpCloud", "upcloud"),
    ("Exoscale", "exoscale"),
    ("ibmcloud", "ibmcloud"),
    ("OpenStack", "openstack"),
];

/// Of these `product_name` is the type: `m7i.large`, `SCW-PLAY2-PICO`.
const TYPED_BY_PRODUCT: [&str; 2] = ["aws", "scaleway"];

/// Names of the type in what providers tell cloud-init.
const TYPE_KEYS: [&str; 5] = ["instance-type", "instance_type", "vmSize", "machineType", "machine-type"];

/// Far more than cloud-init writes.
const BYTES_MAX: u64 = 4 << 20;

/// Provider and type; each empty where nothing tells it.
pub(super) fn of(dmi: &Path, instance_data: &Path) -> (String, String) {
    let word = |name: &str| plain(&read(&dmi.join(name)));
    let product = word("product_name");
    let said = ["sys_vendor", "product_name", "bios_vendor", "chassis_asset_tag"].map(word);
    let known = PROVIDERS.iter().find(|(begin, _)| said.iter().any(|word| word.starts_with(begin)));
    let told: Value = serde_json::from_str(&read(instance_data)).unwrap_or_default();
    let provider = match known {
        Some((_, provider)) => (*provider).to_owned(),
        None => told.pointer("/v1/cloud_name").and_then(Value::as_str).map(plain).unwrap_or_default(),
    };
    // Machines that are nobody's cloud have cloud-init, too.
    let provider =
        if ["none", "nocloud", "unknown"].contains(&&*provider) { String::new() } else { provider };
    let by_product = TYPED_BY_PRODUCT.contains(&&*provider) && !product.is_empty();
    let kind = match by_product && !product.starts_with("HVM") {
        true => product,
        false => kind_in(told.get("ds").unwrap_or(&Value::Null), 0).unwrap_or_default(),
    };
    (provider, kind)
}

/// The first type that stands in it. Google's is a path: its last part.
fn kind_in(value: &Value, depth: usize) -> Option<String> {
    let map = value.as_object().filter(|_| depth < 8)?;
    let here = TYPE_KEYS.iter().find_map(|key| map.get(*key)?.as_str());
    let here =
        here.map(|text| plain(text.rsplit('/').next().unwrap_or(text))).filter(|kind| !kind.is_empty());
    here.or_else(|| map.values().find_map(|inner| kind_in(inner, depth + 1)))
}

fn read(path: &Path) -> String {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text));
    if read.is_ok() { text } else { String::new() }
}

/// A word for a table.
fn plain(text: &str) -> String {
    text.trim().chars().filter(|c| !c.is_control()).take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_and_type_are_what_the_machine_says() {
        let azure = "7783-7084-3265-9085-8269-3286-77";
        let ec2 = r#"{"v1": {"cloud_name": "aws"}, "ds": {"meta_data": {"instance-type": "c7g.xlarge", "hostname": "h"}}}"#;
        let imds =
            r#"{"ds": {"meta_data": {"imds": {"compute": {"vmSize": "Standard_D2s_v5", "name": "mine"}}}}}"#;
        let gce = r#"{"ds": {"meta_data": {"instance": {"machineType": "projects/1/machineTypes/n2-standard-4"}}}}"#;
        for (files, told, provider, kind) in [
            (&[("sys_vendor", "Amazon EC2\n"), ("product_name", "m7i.large\n")][..], "", "aws", "m7i.large"),
            (&[("sys_vendor", "Xen"), ("product_name", "HVM domU")], ec2, "aws", "c7g.xlarge"),
            (
                &[("chassis_asset_tag", azure), ("product_name", "Virtual Machine")],
                imds,
                "azure",
                "Standard_D2s_v5",
            ),
            (&[("product_name", "Google Compute Engine")], gce, "gce", "n2-standard-4"),
            (&[("sys_vendor", "Hetzner"), ("product_name", "vServer")], "", "hetzner", ""),
            (&[("sys_vendor", "QEMU")], r#"{"v1": {"cloud_name": "nocloud"}}"#, "", ""),
            (&[("sys_vendor", "LENOVO"), ("product_name", "20XW")], "not JSON", "", ""),
            (&[], "", "", ""),
        ] {
            let dir = tempfile::tempdir().unwrap();
            files.iter().for_each(|(name, text)| std::fs::write(dir.path().join(name), text).unwrap());
            let data = dir.path().join("instance-data.json");
            std::fs::write(&data, told).unwrap();
            assert_eq!(of(dir.path(), &data), (provider.to_owned(), kind.to_owned()), "{files:?} {told}");
        }
    }
}
